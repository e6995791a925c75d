//! What graphs can do beyond what is simulated: recapture.

unsupported! {
    cudaStreamBeginRecaptureToGraph cudaStreamBeginRecaptureToGraph_ptsz
}
