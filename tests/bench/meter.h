// meter.h: board power and SM clock of one GPU, sampled by a thread of its own through NVML.
//
// NVML is opened at run time and its few declarations stand here, so that neither its header nor
// its library is needed to build. Without it all figures are 0. Declarations: NVML API reference,
// R580.
#ifndef METER_H_
#define METER_H_

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

inline double now_s() {
  using clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}

// ---- NVML ---------------------------------------------------------------------------------------

typedef struct nvmlDevice_st *nvml_device_t;

typedef struct nvml_field {
  unsigned id, scope;
  long long timestamp, latency_us;
  int value_type; // 1: unsigned
  int status;
  union {
    double d;
    unsigned u;
    unsigned long long ull;
  } value;
} nvml_field_t;

enum { NVML_CLOCK_SM_ID = 1, NVML_POWER_INSTANT_ID = 186, NVML_UNSIGNED_INT = 1 };

struct nvml_t {
  int (*init)();
  int (*by_pci)(const char *, nvml_device_t *);
  int (*by_index)(unsigned, nvml_device_t *);
  int (*power_mw)(nvml_device_t, unsigned *);
  int (*fields)(nvml_device_t, int, nvml_field_t *);
  int (*clock_mhz)(nvml_device_t, int, unsigned *);
  int (*max_clock_mhz)(nvml_device_t, int, unsigned *);
  int (*power_limit_mw)(nvml_device_t, unsigned *);
  int (*driver_version)(char *, unsigned);
};

inline bool load_nvml(nvml_t *out) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) return false;
  bool all = true;
  auto find = [&](auto *to, const char *name) {
    *to = (std::remove_reference_t<decltype(*to)>)dlsym(library, name);
    all = all && *to != nullptr;
  };
  find(&out->init, "nvmlInit_v2");
  find(&out->by_pci, "nvmlDeviceGetHandleByPciBusId_v2");
  find(&out->by_index, "nvmlDeviceGetHandleByIndex_v2");
  find(&out->power_mw, "nvmlDeviceGetPowerUsage");
  find(&out->fields, "nvmlDeviceGetFieldValues");
  find(&out->clock_mhz, "nvmlDeviceGetClockInfo");
  find(&out->max_clock_mhz, "nvmlDeviceGetMaxClockInfo");
  find(&out->power_limit_mw, "nvmlDeviceGetEnforcedPowerLimit");
  find(&out->driver_version, "nvmlSystemGetDriverVersion");
  return all && out->init() == 0;
}

// ---- the meter ----------------------------------------------------------------------------------

struct meter_t {
  struct sample_t {
    double at_s, watts, mhz;
  };
  nvml_t nvml = {};
  nvml_device_t device = nullptr;
  char driver[96] = "?";
  unsigned cap_mw = 0, max_mhz = 0;
  mutable std::mutex mutex;
  std::vector<sample_t> samples;

  // Of CUDA's device 0, whose number in NVML may be another one. The thread lives as long as the
  // process.
  bool start() {
    char pci[32] = "";
    if (!load_nvml(&nvml)) return false;
    bool found =
        cudaDeviceGetPCIBusId(pci, sizeof pci, 0) == cudaSuccess && nvml.by_pci(pci, &device) == 0;
    if (!found && nvml.by_index(0, &device) != 0) return false;
    nvml.driver_version(driver, sizeof driver);
    nvml.power_limit_mw(device, &cap_mw);
    nvml.max_clock_mhz(device, NVML_CLOCK_SM_ID, &max_mhz);
    std::thread([this] {
      for (;;) {
        sample();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }).detach();
    return true;
  }

  double watts(double from_s, double to_s) const { return mean(from_s, to_s, &sample_t::watts); }
  double mhz(double from_s, double to_s) const { return mean(from_s, to_s, &sample_t::mhz); }

private:
  // The power of this moment where the driver tells it; the older call averages over a second.
  bool read_mw(unsigned *out_mw) {
    nvml_field_t field = {};
    field.id = NVML_POWER_INSTANT_ID;
    bool instant = nvml.fields(device, 1, &field) == 0 && field.status == 0 &&
                   field.value_type == NVML_UNSIGNED_INT;
    *out_mw = field.value.u;
    return instant || nvml.power_mw(device, out_mw) == 0;
  }

  void sample() {
    unsigned mw = 0, mhz = 0;
    double at_s = now_s();
    if (!read_mw(&mw) || nvml.clock_mhz(device, NVML_CLOCK_SM_ID, &mhz) != 0) return;
    std::lock_guard<std::mutex> lock(mutex);
    samples.push_back({at_s, mw * 1e-3, (double)mhz});
  }

  double mean(double from_s, double to_s, double sample_t::*what) const {
    std::lock_guard<std::mutex> lock(mutex);
    double sum = 0;
    int count = 0;
    for (const sample_t &s : samples)
      if (s.at_s >= from_s && s.at_s <= to_s) sum += s.*what, count++;
    return count ? sum / count : 0;
  }
};

// One line that says what a result was measured on, and how.
inline void print_machine(const meter_t &meter, int argc, char **argv) {
  cudaDeviceProp prop;
  int runtime = 0;
  char date[32];
  time_t now = time(nullptr);
  strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", gmtime(&now));
  if (cudaGetDeviceProperties(&prop, 0) != cudaSuccess) return;
  cudaRuntimeGetVersion(&runtime);
  printf("%s, %d SMs, driver %s, CUDA %d.%d, %s, SM clock at most %u MHz, power cap %.0f W;",
         prop.name, prop.multiProcessorCount, meter.driver, runtime / 1000, runtime % 1000 / 10,
         date, meter.max_mhz, meter.cap_mw * 1e-3);
  for (int i = 0; i < argc; i++) printf(" %s", argv[i]);
  printf("\n");
}

#endif // METER_H_
