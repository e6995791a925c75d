//! What graphs can do beyond what is simulated: recapture, capture for graphics, objects that a graph keeps alive.

unsupported! {
    cuGraphReleaseUserObject cuGraphRetainUserObject cuStreamBeginCaptureToCig cuStreamBeginRecaptureToGraph
    cuStreamEndCaptureToCig cuUserObjectCreate cuUserObjectRelease cuUserObjectRetain
}
