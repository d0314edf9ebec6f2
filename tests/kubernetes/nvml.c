/* Copyright: (c) 2026, gpu.fleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A mock libnvidia-ml.so.1 for NVIDIA's device plugin: GPUs of the file NVML_GPUS, each a line with its UUID, minor
 * number, bus ID and name. None is in MIG mode, and there are no NVLinks. Numbers are those of NVML's header.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 16
typedef struct { char uuid[80], bus[32], name[96]; unsigned minor; } gpu;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; } pci;
typedef struct { unsigned long long total, free, used; } memory;
static gpu gpus[MOST];
static unsigned count;
enum { OK, UNINITIALIZED, INVALID, NOT_SUPPORTED, NO_PERMISSION, ALREADY, NOT_FOUND };

int nvmlInitWithFlags(unsigned flags) {
    const char *path = getenv("NVML_GPUS");
    FILE *list = path ? fopen(path, "r") : NULL;
    (void)flags;
    if (!list) return UNINITIALIZED;
    for (count = 0; count < MOST; count++)
        if (fscanf(list, "%79s %u %31s %95[^\n]", gpus[count].uuid, &gpus[count].minor, gpus[count].bus, gpus[count].name) != 4)
            break;
    fclose(list);
    return OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == OK ? "Success" : "Error"; }
static int text(char *to, unsigned size, const char *from) { snprintf(to, size, "%s", from); return OK; }
int nvmlSystemGetDriverVersion(char *to, unsigned size) { return text(to, size, "580.159.04"); }
int nvmlSystemGetNVMLVersion(char *to, unsigned size) { return text(to, size, "13.580.159.04"); }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return OK; }
int nvmlDeviceGetCount_v2(unsigned *found) { *found = count; return OK; }
int nvmlDeviceGetCount(unsigned *found) { *found = count; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu **found) {
    if (index >= count) return INVALID;
    *found = &gpus[index];
    return OK;
}
int nvmlDeviceGetHandleByIndex(unsigned index, gpu **found) { return nvmlDeviceGetHandleByIndex_v2(index, found); }
int nvmlDeviceGetHandleByUUID(const char *uuid, gpu **found) {
    for (unsigned index = 0; index < count; index++)
        if (!strcmp(gpus[index].uuid, uuid)) { *found = &gpus[index]; return OK; }
    return NOT_FOUND;
}
int nvmlDeviceGetIndex(gpu *device, unsigned *index) { *index = (unsigned)(device - gpus); return OK; }
int nvmlDeviceGetName(gpu *device, char *to, unsigned size) { return text(to, size, device->name); }
int nvmlDeviceGetUUID(gpu *device, char *to, unsigned size) { return text(to, size, device->uuid); }
int nvmlDeviceGetMinorNumber(gpu *device, unsigned *minor) { *minor = device->minor; return OK; }
int nvmlDeviceGetMigMode(gpu *device, unsigned *now, unsigned *next) { (void)device; *now = *next = 0; return OK; }
int nvmlDeviceGetMaxMigDeviceCount(gpu *device, unsigned *most) { (void)device; *most = 0; return OK; }
int nvmlDeviceIsMigDeviceHandle(gpu *device, unsigned *is) { (void)device; *is = 0; return OK; }
int nvmlDeviceGetMemoryInfo(gpu *device, memory *found) {
    (void)device;
    *found = (memory){150754820096ULL, 150754820096ULL, 0};
    return OK;
}
int nvmlDeviceGetPciInfo_v3(gpu *device, pci *found) {
    memset(found, 0, sizeof *found);
    sscanf(device->bus, "%x:%x:%x", &found->domain, &found->bus, &found->device);
    snprintf(found->text, sizeof found->text, "%s", device->bus);
    snprintf(found->legacy, sizeof found->legacy, "%.15s", device->bus + 4);
    return OK;
}
int nvmlDeviceGetPciInfo(gpu *device, pci *found) { return nvmlDeviceGetPciInfo_v3(device, found); }
int nvmlDeviceGetCudaComputeCapability(gpu *device, int *major, int *minor) { (void)device; *major = 9; *minor = 0; return OK; }
int nvmlDeviceGetArchitecture(gpu *device, unsigned *found) { (void)device; *found = 9; return OK; }
int nvmlDeviceGetBrand(gpu *device, unsigned *found) { (void)device; *found = 2; return OK; }
int nvmlDeviceGetAddressingMode(gpu *device, void *mode) { (void)device; (void)mode; return NOT_SUPPORTED; }
int nvmlDeviceGetTopologyCommonAncestor(gpu *one, gpu *other, unsigned *level) { (void)one; (void)other; *level = 50; return OK; }
int nvmlDeviceGetNvLinkState(gpu *device, unsigned link, unsigned *state) { (void)device; (void)link; *state = 0; return NOT_SUPPORTED; }
