// Copies of two and three dimensions between host, pitched memory and CUDA arrays, a texture and a
// surface over arrays, rows of one image on two streams.
#include "hunt.h"

constexpr int W = 500, H = 300, D = 8;

__global__ void scale_rows(float *image, size_t pitch, int w, int rows, float factor) {
    EACH(i, w * rows) ((float *)((char *)image + pitch * (i / w)))[i % w] *= factor;
}

__global__ void sample(cudaTextureObject_t texture, float *out, int w, int h) {
    EACH(i, w * h) out[i] = tex2D<float>(texture, i % w + 0.5f, i / w + 0.5f);
}

__global__ void paint(cudaSurfaceObject_t surface, const float *in, int w, int h) {
    EACH(i, w * h) surf2Dwrite(in[i] + 1, surface, (i % w) * int(sizeof(float)), i / w);
}

int main() {
    cudaStream_t s = new_stream(), t = new_stream();
    constexpr size_t ROW = W * sizeof(float);
    float *host = pinned<float>(W * H * D), *back = pinned<float>(W * H * D);
    for (int i = 0; i < W * H * D; i++) host[i] = 1;

    // The upper half on one stream, the lower half on the other, columns and all.
    float *image;
    size_t pitch;
    CHECK(cudaMallocPitch((void **)&image, &pitch, ROW, H));
    float *lower = (float *)((char *)image + pitch * (H / 2));
    CHECK(cudaMemcpy2DAsync(image, pitch, host, ROW, ROW, H / 2, cudaMemcpyHostToDevice, s));
    CHECK(cudaMemcpy2DAsync(lower, pitch, host + W * (H / 2), ROW, ROW, H / 2, cudaMemcpyHostToDevice, t));
    scale_rows<<<32, 256, 0, s>>>(image, pitch, W, H / 2, 2);
    scale_rows<<<32, 256, 0, t>>>(lower, pitch, W, H / 2, 2);
    CHECK(cudaMemcpy2DAsync(back, ROW, image, pitch, ROW, H / 2, cudaMemcpyDeviceToHost, s));
    CHECK(cudaMemcpy2DAsync(back + W * (H / 2), ROW, lower, pitch, ROW, H / 2, cudaMemcpyDeviceToHost, t));
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaStreamSynchronize(t));
    expect_all(back, W * H, 2.0f);
    // Left and right halves of the same rows: interleaved, and disjoint.
    CHECK(cudaMemset2DAsync(image, pitch, 0, ROW / 2, H, s));
    CHECK(cudaMemset2DAsync(image + W / 2, pitch, 0, ROW / 2, H, t));
    join(t, s);
    CHECK(cudaMemcpy2DAsync(back, ROW, image, pitch, ROW, H, cudaMemcpyDeviceToHost, s));
    CHECK(cudaStreamSynchronize(s));
    expect_all(back, W * H, 0.0f);

    // A volume.
    cudaPitchedPtr volume;
    cudaExtent extent = make_cudaExtent(ROW, H, D);
    CHECK(cudaMalloc3D(&volume, extent));
    CHECK(cudaMemset3DAsync(volume, 0, extent, s));
    cudaMemcpy3DParms copy = {};
    copy.extent = extent;
    copy.srcPtr = make_cudaPitchedPtr(host, ROW, W, H);
    copy.dstPtr = volume;
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3DAsync(&copy, s));
    copy.srcPtr = volume;
    copy.dstPtr = make_cudaPitchedPtr(back, ROW, W, H);
    copy.kind = cudaMemcpyDeviceToHost;
    join(s, t);
    CHECK(cudaMemcpy3DAsync(&copy, t));
    CHECK(cudaStreamSynchronize(t));
    expect_all(back, W * H * D, 1.0f);

    // Host to array, texture to linear memory, linear memory to surface, array to host.
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK(cudaMallocArray(&array, &format, W, H, cudaArraySurfaceLoadStore));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc how = {};
    how.readMode = cudaReadModeElementType;
    cudaTextureObject_t texture;
    cudaSurfaceObject_t surface;
    CHECK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    float *linear = async<float>(W * H, s);
    CHECK(cudaMemcpy2DToArrayAsync(array, 0, 0, host, ROW, ROW, H, cudaMemcpyHostToDevice, s));
    sample<<<32, 256, 0, s>>>(texture, linear, W, H);
    paint<<<32, 256, 0, s>>>(surface, linear, W, H);
    CHECK(cudaMemcpy2DFromArrayAsync(back, ROW, array, 0, 0, ROW, H, cudaMemcpyDeviceToHost, s));
    CHECK(cudaFreeAsync(linear, s));
    CHECK(cudaStreamSynchronize(s));
    expect_all(back, W * H, 2.0f);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(volume.ptr));
    CHECK(cudaFree(image));
    CHECK(cudaFreeHost(host));
    CHECK(cudaFreeHost(back));
}
