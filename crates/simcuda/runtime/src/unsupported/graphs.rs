//! What graphs can do beyond what is simulated: recapture, and objects that a graph keeps alive.

unsupported! {
    cudaGraphReleaseUserObject cudaGraphRetainUserObject cudaStreamBeginRecaptureToGraph
    cudaStreamBeginRecaptureToGraph_ptsz cudaUserObjectCreate cudaUserObjectRelease cudaUserObjectRetain
}
