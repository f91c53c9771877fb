// What PyTorch's CPU build lacks of CUDA so that it takes tensors of the device "cuda", and runs
// backward passes of them: a guard with the device that is current in each thread, and the answer
// that there is such an accelerator. PyTorch's own streams are all one here.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <cstdlib>

static c10::DeviceIndex devices() {
    const char* count = getenv("STAND_IN_DEVICES");
    return count ? atoi(count) : 1;
}

namespace {

thread_local c10::DeviceIndex current = 0;

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
    c10::Device exchangeDevice(c10::Device device) const override {
        c10::Device before = getDevice();
        current = device.index();
        return before;
    }
    c10::Device getDevice() const override { return {c10::DeviceType::CUDA, current}; }
    void setDevice(c10::Device device) const override { current = device.index(); }
    void uncheckedSetDevice(c10::Device device) const noexcept override { current = device.index(); }
    c10::Stream getStream(c10::Device device) const override {
        return c10::Stream(c10::Stream::DEFAULT, device);
    }
    c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
    c10::DeviceIndex deviceCount() const noexcept override { return devices(); }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard);

}  // namespace

namespace at {

struct StandInHooks final : CUDAHooksInterface {
    explicit StandInHooks(CUDAHooksArgs) {}
    void init() const override {}
    bool hasCUDA() const override { return true; }
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(DeviceIndex) const override { return true; }
    int getNumGPUs() const override { return devices(); }
    DeviceIndex deviceCount() const override { return devices(); }
    DeviceIndex getCurrentDevice() const override { return current; }
};

C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", StandInHooks);

}  // namespace at

// For tests: which device is current in this thread, and, if it is at least 0, another one from now on.
extern "C" int torch_exchange_device(int device) {
    int before = current;
    if (device >= 0) current = c10::DeviceIndex(device);
    return before;
}
