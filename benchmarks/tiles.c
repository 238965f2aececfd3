/* For virtual machines that let AMX through but hide the leaf of CPUID that describes its tiles (see
   src/clearhead/tiles.py): with this loaded first, oneDNN hears what every CPU with AMX says, and computes in tiles.

     gcc -O2 -shared -fPIC benchmarks/tiles.c -o /tmp/tiles.so
     LD_PRELOAD=/tmp/tiles.so ONEDNN_MAX_CPU_ISA=DEFAULT python benchmarks/train.py --size tiny

   For measuring only. Linux on x86-64, on a CPU that can fault on CPUID; elsewhere it does nothing. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012
#define TILES 0x1d
#define PRODUCTS 0x1e

static void answer(int number, siginfo_t *info, void *context) {
  (void)number, (void)info;
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const uint8_t *at = (const uint8_t *)registers[REG_RIP];
  if (at[0] != 0x0f || at[1] != 0xa2) { /* Not CPUID: a fault like any other, which happens again at once. */
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  uint32_t leaf = registers[REG_RAX], part = registers[REG_RCX], a, b, c, d;
  syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1);
  __cpuid_count(leaf, part, a, b, c, d);
  syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
  if (leaf == 0 && a < PRODUCTS) a = PRODUCTS;
  if (leaf == TILES && part == 0) a = 1, b = c = d = 0;
  /* Palette 1: 8 KiB in 8 tiles of 1 KiB, 16 rows of 64 bytes. */
  if (leaf == TILES && part == 1) a = 0x04002000, b = 0x00080040, c = 16, d = 0;
  if (leaf == PRODUCTS && part == 0) a = 0, b = 0x4010, c = d = 0;
  registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
  registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void begin(void) {
  struct sigaction how;
  memset(&how, 0, sizeof how);
  how.sa_sigaction = answer;
  how.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0) == 0) sigaction(SIGSEGV, &how, 0);
}
