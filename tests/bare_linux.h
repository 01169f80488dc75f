/* What a program for Linux needs that is linked with neither start files nor a C library. */
#ifndef BARE_LINUX_H
#define BARE_LINUX_H

#include <stdint.h>

static long system_call(long number, long a, const void *b, long c)
{
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__i386__)
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register const void *x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#elif defined(__arm__)
    register long r7 __asm__("r7") = number;
    register long r0 __asm__("r0") = a;
    register const void *r1 __asm__("r1") = b;
    register long r2 __asm__("r2") = c;
    __asm__ volatile("svc #0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2) : "memory");
    return r0;
#elif defined(__riscv)
    register long a7 __asm__("a7") = number;
    register long a0 __asm__("a0") = a;
    register const void *a1 __asm__("a1") = b;
    register long a2 __asm__("a2") = c;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2) : "memory");
    return a0;
#endif
}

#if defined(__x86_64__)
enum { WRITE = 1, EXIT = 60 };
#elif defined(__i386__) || defined(__arm__)
enum { WRITE = 4, EXIT = 1 };
#else
enum { WRITE = 64, EXIT = 93 };
#endif

/* The stack is not aligned as functions expect it. */
#if defined(__x86_64__)
__asm__(".globl _start\n_start: andq $-16, %rsp\n call begin\n");
#elif defined(__i386__)
__asm__(".globl _start\n_start: andl $-16, %esp\n call begin\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start: bl begin\n");
#elif defined(__arm__)
__asm__(".thumb\n.globl _start\n.type _start, %function\n_start: bl begin\n");
#elif defined(__riscv)
__asm__(".globl _start\n_start: call begin\n");
#endif

#endif
