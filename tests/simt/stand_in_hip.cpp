// A HIP runtime (libamdhip64.so) for machines without one: as much as the driver asks for, over the
// functions of the stand-in CUDA driver, of which HIP's have the meanings, names and error numbers.
#include "stand_in_cuda.cpp"

#define HIP extern "C" __attribute__((visibility("default"))) int

static CUstream own(void* s) { return (CUstream)s; }

HIP hipGetDeviceCount(int* count) { return cuDeviceGetCount(count); }
static const bool is_wave64 = (lanes_in_step = 64);  // as a gfx942 steps

HIP hipSetDevice(int device) { return cuCtxSetCurrent((CUcontext)&contexts[device]); }
HIP hipGetDevicePropertiesR0600(char* properties, int device) {
    memset(properties, 0, PROPERTIES_SIZE);
    *(int*)(properties + MULTIPROCESSORS_OFFSET) = 2;
    *(int*)(properties + MOST_THREADS_OFFSET) = 1024;
    *(int*)(properties + WARP_OFFSET) = lanes_in_step;
    *(int*)(properties + BUS_OFFSET) = device;
    strcpy(properties + ARCHITECTURE_OFFSET, "gfx942:sramecc+:xnack-");
    return 0;
}
HIP hipMemGetInfo(size_t* free, size_t* total) { return cuMemGetInfo_v2(free, total); }
HIP hipMallocAsync(void** at, size_t size, void*) { return allocate((CUdeviceptr*)at, size); }
HIP hipFreeAsync(void* at, void* s) { return cuMemFreeAsync((CUdeviceptr)at, own(s)); }
HIP hipMemcpyAsync(void* to, void* from, size_t size, int, void* s) {
    return copy((CUdeviceptr)to, (CUdeviceptr)from, size, own(s));
}
HIP hipMemcpyWithStream(void* to, void* from, size_t size, int kind, void* s) {
    int status = hipMemcpyAsync(to, from, size, kind, s);
    return status ? status : run(stream(own(s)));
}
HIP hipStreamCreate(void** s) { return cuStreamCreateWithPriority((CUstream*)s, 0, 0); }
HIP hipMemsetAsync(void* to, int value, size_t size, void* s) {
    return cuMemsetD8Async((CUdeviceptr)to, value, size, own(s));
}
HIP hipEventQuery(void* event) { return cuEventQuery((CUevent)event); }
HIP hipStreamSynchronize(void* s) { return cuStreamSynchronize(own(s)); }
HIP hipStreamDestroy(void*) { return 0; }
HIP hipStreamBeginCapture(void* s, int) {
    return cuStreamBeginCapture_v2(own(s), CU_STREAM_CAPTURE_MODE_RELAXED);
}
HIP hipStreamEndCapture(void* s, void** graph) {
    return cuStreamEndCapture(own(s), (CUgraph*)graph);
}
HIP hipGraphInstantiateWithFlags(void** made, void* graph, unsigned long long flags) {
    return cuGraphInstantiateWithFlags((CUgraphExec*)made, (CUgraph)graph, flags);
}
HIP hipGraphLaunch(void* made, void* s) { return cuGraphLaunch((CUgraphExec)made, own(s)); }
HIP hipGraphDestroy(void* graph) { return cuGraphDestroy((CUgraph)graph); }
HIP hipGraphExecDestroy(void* made) { return cuGraphExecDestroy((CUgraphExec)made); }
HIP hipHostMalloc(void** at, size_t size, unsigned) { return cuMemAllocHost_v2(at, size); }
HIP hipHostFree(void* at) { return cuMemFreeHost(at); }
HIP hipEventCreate(void** event) { return cuEventCreate((CUevent*)event, 0); }
HIP hipEventDestroy(void* event) { return cuEventDestroy_v2((CUevent)event); }
HIP hipEventRecord(void* event, void* s) { return cuEventRecord((CUevent)event, own(s)); }
HIP hipStreamWaitEvent(void* s, void* event, unsigned flags) {
    return cuStreamWaitEvent(own(s), (CUevent)event, flags);
}
HIP hipEventSynchronize(void* event) { return cuEventSynchronize((CUevent)event); }
HIP hipEventElapsedTime(float* milliseconds, void* first, void* last) {
    return cuEventElapsedTime_v2(milliseconds, (CUevent)first, (CUevent)last);
}
HIP hipModuleLoadData(void** module, const void* image) { return load((Module**)module, image); }
HIP hipModuleGetFunction(void** function, void* module, const char* name) {
    return find((Function**)function, (Module*)module, name);
}
HIP hipModuleLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned dynamic,
                          void* s, void** parameters, void** extra) {
    return cuLaunchKernel((CUfunction)function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                          dynamic, own(s), parameters, extra);
}
HIP hipModuleLaunchCooperativeKernel(void* function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned dynamic, void* s,
                                     void** parameters) {
    return launch_kernel((CUfunction)function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                         dynamic, own(s), parameters, true);
}
HIP hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* groups, void*, int lanes,
                                                       size_t dynamic) {
    return *groups = held(lanes, dynamic), 0;
}
HIP hipDeviceGetAttribute(int* value, int, int) { return *value = 1000000, 0; }  // clocks: 1 GHz
