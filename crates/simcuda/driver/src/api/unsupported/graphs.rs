//! What graphs can do beyond what is simulated: recapture, and capture for graphics.

unsupported! {
    cuStreamBeginCaptureToCig cuStreamBeginCaptureToCig_ptsz cuStreamBeginRecaptureToGraph
    cuStreamBeginRecaptureToGraph_ptsz cuStreamEndCaptureToCig cuStreamEndCaptureToCig_ptsz
}
