//! Textures, surfaces, mipmapped and sparse arrays, and tensor maps.

unsupported! {
    cudaArrayGetMemoryRequirements cudaArrayGetPlane cudaArrayGetSparseProperties
    cudaCreateSurfaceObject cudaCreateTextureObject cudaDestroySurfaceObject
    cudaDestroyTextureObject cudaDeviceGetTexture1DLinearMaxWidth cudaFreeMipmappedArray
    cudaGetMipmappedArrayLevel cudaGetSurfaceObjectResourceDesc cudaGetTextureObjectResourceDesc
    cudaGetTextureObjectResourceViewDesc cudaGetTextureObjectTextureDesc cudaMallocMipmappedArray
    cudaMipmappedArrayGetMemoryRequirements cudaMipmappedArrayGetSparseProperties
}
