/* Small programs over the simulated libraries, each with host memory that pending work uses; the first argument says which.
 * What is theirs stays as it would be without a guard: signals, masks, values, the way in which they end. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

typedef void *stream_t;
enum { H2D = 1, D2H, PAGE = 4096, BYTES = 8 * PAGE };
int cudaMalloc(void **, size_t), cudaMallocHost(void **, size_t), cudaFreeHost(void *), cudaDeviceReset(void);
int cudaHostRegister(void *, size_t, unsigned), cudaHostUnregister(void *);
int cudaMemcpyAsync(void *, const void *, size_t, int, stream_t), cudaMemset(void *, int, size_t);
int cuStreamWriteValue32_v2(stream_t, uint64_t, unsigned, unsigned);
int cudaStreamCreateWithFlags(stream_t *, unsigned), cudaStreamSynchronize(stream_t), cudaDeviceSynchronize(void);

#define OK(call)                                                         \
  do {                                                                   \
    int status = (call);                                                 \
    if (status) {                                                        \
      fprintf(stderr, "line %d: %s: %d\n", __LINE__, #call, status);     \
      exit(1);                                                           \
    }                                                                    \
  } while (0)
#define IS(fact)                                                         \
  do {                                                                   \
    if (!(fact)) {                                                       \
      fprintf(stderr, "line %d: not %s\n", __LINE__, #fact);             \
      exit(2);                                                           \
    }                                                                    \
  } while (0)

static stream_t stream;
static char *device, *host;
static volatile char sink;
static int is(const char *name, const char *wanted) { return !strcmp(name, wanted); }

/* Memory that a pending copy writes: 7 in each byte, once it has. */
static void write_later(char *to, size_t size) {
  OK(cudaMemcpyAsync(to, device, size, D2H, stream));
}
static void begin(void) {
  void *memory;
  OK(cudaStreamCreateWithFlags(&stream, 1));
  OK(cudaMalloc(&memory, BYTES));
  device = memory;
  OK(cudaMemset(device, 7, BYTES));
  OK(cudaDeviceSynchronize());
  OK(cudaMallocHost(&memory, BYTES));
  host = memory;
  memset(host, 1, BYTES);
}
/* A page of the program's own, which nobody may touch. */
static char *closed_page(void) {
  char *page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  IS(page != MAP_FAILED);
  return page;
}
static char *volatile page;
static volatile sig_atomic_t calls;
static sigjmp_buf back;

static void opens(int number, siginfo_t *info, void *context) {
  (void)context;
  if (number != SIGSEGV || (char *)info->si_addr != page) _exit(9);
  calls++;
  mprotect(page, PAGE, PROT_READ | PROT_WRITE);
}
static void jumps(int number) {
  (void)number;
  calls++;
  siglongjmp(back, 1);
}
static void tries_thrice(void) {
  static int times;
  for (times = 0; times < 3; times++)
    if (!sigsetjmp(back, 1)) *(volatile int *)8 = 1;
}
/* The pages of earlier reads are open. */
static void reads(int number) {
  (void)number;
  sink = host[++calls * 2 * PAGE];
}
static void counts(int number) {
  (void)number;
  calls++;
}
static void faults_again(int number) {
  (void)number;
  if (calls++ > 3) _exit(9);
  *(volatile int *)8 = 1;
}
static void act(int number, void (*handler)(int, siginfo_t *, void *), int flags) {
  struct sigaction action = {0};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  sigaddset(&action.sa_mask, SIGUSR2);
  sigaddset(&action.sa_mask, SIGTRAP);
  OK(sigaction(number, &action, NULL));
}
static void is_told(int number, void *handler, unsigned flags) {
  struct sigaction told;
  OK(sigaction(number, NULL, &told));
  IS((void *)told.sa_sigaction == handler);
  IS(((unsigned)told.sa_flags & (SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESETHAND | SA_RESTART)) == flags);
  if (handler == (void *)opens) IS(sigismember(&told.sa_mask, SIGUSR2) && sigismember(&told.sa_mask, SIGTRAP));
}
static void *reads_early(void *unused) {
  (void)unused;
  sink = host[5];
  return NULL;
}
static void *reads_socket(void *two) {
  read(((int *)two)[0], host, 100);
  return NULL;
}
static void *receives(void *two) {
  IS(recv(((int *)two)[0], host + 2048, 100, 0) == 100);
  return NULL;
}
/* Past the C library, as some runtimes do. */
static unsigned long kernel_mask(int how, unsigned long set) {
  unsigned long old = 0;
  OK(syscall(SYS_rt_sigprocmask, how, how < 0 ? NULL : &set, &old, 8));
  return old;
}
static int block_pipe[2];
static void *blocks_for_long(void *said) {
  char byte;
  kernel_mask(SIG_BLOCK, 1ul << (SIGSEGV - 1));
  IS(write(((int *)said)[1], "x", 1) == 1);
  IS(read(block_pipe[0], &byte, 1) == 1);
  return NULL;
}
/* A handler that touches a page beside what is in use, wherever it interrupts. */
static void touches(int number) {
  (void)number;
  host[PAGE + 100]++;
}
static void interrupted(void) {
  struct itimerval often = {{0, 60}, {0, 60}}, never = {{0, 0}, {0, 0}};
  int round;
  signal(SIGALRM, touches);
  OK(setitimer(ITIMER_REAL, &often, NULL));
  for (round = 0; round < 1500; round++) {
    write_later(host, 64);
    write_later(host + PAGE, 64);
    host[100]++, host[200]++, host[300]++;
    OK(cudaStreamSynchronize(stream));
  }
  OK(setitimer(ITIMER_REAL, &never, NULL));
}
/* Memory is tried as `tries_thrice` does it, from ever deeper frames that nobody clears. */
static sigjmp_buf inner;
static void tries_within(int number) {
  sigset_t own;
  (void)number;
  if (calls++) siglongjmp(inner, 1);
  sigemptyset(&own);
  sigaddset(&own, SIGSEGV);
  OK(sigprocmask(SIG_BLOCK, NULL, &own));
  IS(sigismember(&own, SIGSEGV));
  OK(sigprocmask(SIG_UNBLOCK, &own, NULL));
  if (!sigsetjmp(inner, 1)) *(volatile int *)8 = 1;
  siglongjmp(back, 1);
}
static int can_read(void) {
  if (sigsetjmp(back, 1)) return 0;
  sink = *(volatile char *)8;
  return 1;
}
static __attribute__((noinline)) int can_read_deeper(int more) {
  char volatile frames[1 << 16];
  frames[more] = 1;
  return more ? can_read_deeper(more - 1) + frames[more] - 1 : can_read();
}
static void *spins(void *unused) {
  int i;
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  for (calls = 1;;)
    for (i = 0; i < 900; i++) host[1000 + i]++;
  return unused;
}
static pthread_mutex_t *lock;
static void *locks(void *unused) {
  int i;
  for (i = 0; i < 20; i++) {
    OK(pthread_mutex_lock(lock));
    usleep(200);
    OK(pthread_mutex_unlock(lock));
  }
  return unused;
}
static int touch_in_callback(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)info, (void)size, (void)unused;
  host[1000]++;
  return 1;
}
static void *walks(void *unused) {
  int i;
  for (i = 0; i < 30; i++) {
    write_later(host, 64);
    dl_iterate_phdr(touch_in_callback, NULL);
  }
  calls = 1;
  return unused;
}
static timer_t timer;
static sem_t rung;
static void rings(union sigval value) {
  IS(value.sival_int == 42);
  sink = host[5];
  sem_post(&rung);
}
static int null_file;
static long failed;
static void writes(int number) {
  (void)number;
  if (write(null_file, host + 2048, 16) != 16) failed++;
}
/* The older ways to block a signal. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void held(void) {
  int way, bit = 1 << (SIGSEGV - 1);
  write_later(host, BYTES);
  for (way = 0; way < 4; way++) {
    if (way == 0) OK(sighold(SIGSEGV));
    if (way == 1) IS(sigblock(bit) == 0 && sigblock(0) == bit);
    if (way == 2) IS(sigsetmask(bit) == 0);
    if (way == 3) IS(sigset(SIGSEGV, SIG_HOLD) == SIG_DFL && sigset(SIGSEGV, SIG_HOLD) == SIG_HOLD);
    sink = host[way * 2 * PAGE];
    if (way == 0) OK(sigrelse(SIGSEGV));
    if (way == 3) IS(sigset(SIGSEGV, SIG_DFL) == SIG_HOLD);
    if (way == 1 || way == 2) IS(sigsetmask(0) == bit);
  }
  IS(sigblock(0) == 0);
}
#pragma GCC diagnostic pop
static void no_core(void) {
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

#if defined __x86_64__
/* What Go's runtime does: its own system call, and a handler that hands on what is not its own. */
struct kernel_action { void *handler; unsigned long flags; void *restorer; unsigned long mask; };
static struct kernel_action before;
__asm__(".globl restores\nrestores: mov $15, %rax\nsyscall\n");
void restores(void);
static void forwards(int number, siginfo_t *info, void *context) {
  calls++;
  ((void (*)(int, siginfo_t *, void *))before.handler)(number, info, context);
}
static void replaced(void) {
  struct kernel_action new = {(void *)forwards, SA_SIGINFO | SA_ONSTACK | 0x04000000, (void *)restores, 0}, there;
  no_core();
  write_later(host, 64);
  OK(syscall(SYS_rt_sigaction, SIGSEGV, &new, &before, 8));
  IS(before.handler);
  write_later(host + PAGE, 64);
  /* Noticed, and taken over. */
  OK(syscall(SYS_rt_sigaction, SIGSEGV, NULL, &there, 8));
  IS(there.handler != (void *)forwards);
  sink = host[PAGE];
  IS(calls == 0);
  puts("replaced");
  fflush(stdout);
  *(volatile int *)8 = 1;
}
#endif

/* Texts behind pending bytes: the C library reads them in whole vectors, and has the kernel read
 * them where they are long. */
static void texts(void) {
  size_t (*volatile length)(const char *) = strlen;
  char *text = host + PAGE - 20, *large = host + 2 * PAGE + 1000;
  FILE *file = tmpfile();
  strcpy(text, "weights.17.bias");
  memset(large, 'a', 6000);
  large[6000] = 0;
  write_later(host + 1000, PAGE - 20 - 1000);
  write_later(host + 2 * PAGE, 256);
  IS(length(text) == 15);
  IS(fprintf(file, "%s\n", large) == 6001 && fflush(file) == 0);
  OK(cudaStreamSynchronize(stream));
  IS(ftell(file) == 6001 && fclose(file) == 0);
}

/* Stacks of coroutines in registered memory, so that their variables can be copied. */
static ucontext_t outside, inside;
static void copies_local(void) {
  char local[64];
  strcpy(local, "hi");
  OK(cudaMemcpyAsync(device, local, sizeof local, H2D, stream));
  calls++;
  OK(cudaStreamSynchronize(stream));
  IS(!strcmp(local, "hi"));
}
static void coroutine(void) {
  enum { SIZE = 64 * PAGE };
  char *stacks = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  IS(stacks != MAP_FAILED);
  OK(cudaHostRegister(stacks, SIZE, 0));
  getcontext(&inside);
  inside.uc_stack.ss_sp = stacks, inside.uc_stack.ss_size = SIZE, inside.uc_link = &outside;
  makecontext(&inside, copies_local, 0);
  swapcontext(&outside, &inside);
  IS(calls == 1);
}

/* A registration of whole pages around a buffer: what else is on the outer ones is not the
 * buffer's, such as what the C library is about to write. */
static void rounded(void) {
  char *area = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  FILE *file = tmpfile();
  IS(area != MAP_FAILED);
  OK(cudaHostRegister(area + PAGE, 3 * PAGE, 0));
  IS(!setvbuf(file, area + PAGE + 100, _IOFBF, 1024));
  fputs("a line", file);
  write_later(area + PAGE + 2000, 2 * PAGE);
  IS(fflush(file) == 0);
  OK(cudaStreamSynchronize(stream));
  IS(area[PAGE + 2000] == 7 && ftell(file) == 6 && fclose(file) == 0);
  OK(cudaHostUnregister(area + PAGE));
}

static void system_calls(void) {
  int two[2], file = fileno(tmpfile());
  char text[PAGE], other[PAGE];
  struct iovec parts[2] = {{text, 10}, {host + PAGE, 100}};
  struct msghdr message = {0};
  FILE *stdio;
  memset(text, 3, sizeof text);
  OK(socketpair(AF_UNIX, SOCK_STREAM, 0, two));
  IS(write(file, text, PAGE) == PAGE);
  /* Each on a page of which other bytes are in use: no mistake. */
  write_later(host, 64);
  IS(pread(file, host + 100, 200, 0) == 200 && host[100] == 3 && host[299] == 3);
  IS(send(two[0], host + 100, 200, 0) == 200);
  IS(recv(two[1], host + 500, 200, 0) == 200 && host[699] == 3);
  stdio = fdopen(dup(file), "r");
  rewind(stdio);
  IS(fread(host + 64, 1, PAGE - 64, stdio) == PAGE - 64 && host[PAGE - 1] == 3);
  IS(getrandom(host + 64, 64, 0) == 64);
  {
    /* What else a call is given. */
    struct stat *told = (struct stat *)(host + 1024);
    struct iovec *list = (struct iovec *)(host + 1536);
    socklen_t *size = (socklen_t *)(host + 1552);
    IS(stat("/", told) == 0 && S_ISDIR(told->st_mode) && fstat(file, told) == 0 && told->st_size == PAGE);
    IS(getcwd(host + 2048, 1024) == host + 2048 && host[2048] == '/');
    IS(readlink("/proc/self/exe", host + 2048, 1024) > 0);
    list->iov_base = text, list->iov_len = 10;
    IS(preadv(file, list, 1, 0) == 10);
    IS(send(two[0], text, 10, 0) == 10);
    *size = 64;
    IS(recvfrom(two[1], other, 10, 0, (struct sockaddr *)(host + 1600), size) == 10);
    strcpy(host + 3000, "said\n");
    stdio = fopen("/dev/null", "w");
    setvbuf(stdio, NULL, _IONBF, 0);
    IS(fputs(host + 3000, stdio) >= 0 && !ferror(stdio));
  }
  OK(cudaStreamSynchronize(stream));
  IS(host[0] == 7 && host[63] == 7);
  /* What the pending copy will write, read by the kernel. */
  write_later(host, BYTES);
  message.msg_iov = parts, message.msg_iovlen = 2;
  IS(sendmsg(two[0], &message, 0) == 110);
  IS(recv(two[1], other, sizeof other, 0) == 110);
  OK(cudaStreamSynchronize(stream));
  IS(host[PAGE] == 7);
}

int main(int count, char **arguments) {
  const char *name = count > 1 ? arguments[1] : "";
  int child, status, number;
  pthread_t thread;
  struct sigaction told;
  sigset_t all, asked;

  if (is(name, "masked-before")) {
    /* As main threads do that leave signals to another one. */
    sigfillset(&all);
    OK(pthread_sigmask(SIG_SETMASK, &all, NULL));
    OK(pthread_sigmask(SIG_BLOCK, NULL, &asked));
    IS(sigismember(&asked, SIGSEGV) && sigismember(&asked, SIGTRAP) && sigismember(&asked, SIGUSR1));
  }
  if (is(name, "timer")) {
    struct sigevent event = {0};
    event.sigev_notify = SIGEV_THREAD;
    event.sigev_notify_function = rings;
    event.sigev_value.sival_int = 42;
    OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
  }
  if (is(name, "action-before")) act(SIGSEGV, opens, SA_ONSTACK);
  if (is(name, "blocked-unseen")) {
    int said[2];
    char byte;
    sigemptyset(&all);
    sigaddset(&all, SIGSEGV);
    OK(sigprocmask(SIG_BLOCK, &all, NULL));
    OK(pipe(said) || pipe(block_pipe));
    OK(pthread_create(&thread, NULL, blocks_for_long, said));
    IS(read(said[0], &byte, 1) == 1);
  }
  begin();
  if (is(name, "read-early") || is(name, "masked-before")) {
    write_later(host, BYTES);
    sink = host[5];
    OK(cudaStreamSynchronize(stream));
    IS(host[5] == 7);
  } else if (is(name, "write-early")) {
    OK(cudaMemcpyAsync(device, host, BYTES, H2D, stream));
    sink = host[5];
    host[5] = 2;
    OK(cudaStreamSynchronize(stream));
    IS(host[5] == 2);
  } else if (is(name, "in-order")) {
    for (number = 1; number < 100; number++) {
      write_later(host, BYTES);
      OK(cudaStreamSynchronize(stream));
      IS(host[5] == (number == 1 ? 7 : number - 1));
      memset(host, number, BYTES);
      OK(cudaMemcpyAsync(device, host, BYTES, H2D, stream));
      IS(host[5] == number);
      OK(cudaStreamSynchronize(stream));
    }
  } else if (is(name, "neighbours")) {
    /* Far more than are let through one by one. */
    write_later(host, 64);
    for (number = 0; number < 3000; number++) host[100 + number % 1000]++;
    memset(host + 2000, 5, 2000);
    OK(cudaStreamSynchronize(stream));
    IS(host[0] == 7 && host[64] == 1 && host[100] == 4 && host[3999] == 5);
  } else if (is(name, "ring")) {
    /* A message at a time, each beside what the CPU works on. */
    for (number = 0; number < 5000; number++) {
      write_later(host + number % 64 * 64, 64);
      host[(number + 1) % 64 * 64]++;
      OK(cudaStreamSynchronize(stream));
    }
  } else if (is(name, "texts")) {
    texts();
  } else if (is(name, "coroutine")) {
    coroutine();
  } else if (is(name, "rounded")) {
    rounded();
  } else if (is(name, "small-allocations")) {
    char *small[8];
    for (number = 0; number < 8; number++) OK(cudaMallocHost((void **)&small[number], 100));
    write_later(small[0], 100);
    for (number = 1; number < 8; number++) memset(small[number], number, 100);
    OK(cudaStreamSynchronize(stream));
    for (number = 1; number < 8; number++) IS(small[number][99] == number);
    IS(small[0][99] == 7);
    for (number = 0; number < 8; number++) OK(cudaFreeHost(small[number]));
  } else if (is(name, "action-before")) {
    write_later(host, BYTES);
    is_told(SIGSEGV, opens, SA_SIGINFO | SA_ONSTACK);
    sink = host[5];
    IS(calls == 0);
    page = closed_page();
    page[0] = 3;
    IS(calls == 1 && page[0] == 3);
  } else if (is(name, "action-after")) {
    write_later(host, BYTES);
    OK(sigaction(SIGSEGV, NULL, &told));
    IS(told.sa_handler == SIG_DFL);
    act(SIGSEGV, opens, 0);
    is_told(SIGSEGV, opens, SA_SIGINFO);
    page = closed_page();
    page[0] = 3;
    sink = host[5];
    IS(calls == 1);
    IS((void *)signal(SIGSEGV, jumps) == (void *)opens);
    is_told(SIGSEGV, jumps, SA_RESTART);
    /* A handler is left by a jump, as programs do that try whether memory is there. */
    tries_thrice();
    IS(calls == 4);
    IS(signal(SIGSEGV, SIG_DFL) == jumps);
  } else if (is(name, "reset-hand")) {
    no_core();
    write_later(host, BYTES);
    act(SIGSEGV, opens, SA_RESETHAND);
    page = closed_page();
    page[0] = 3;
    IS(calls == 1);
    OK(sigaction(SIGSEGV, NULL, &told));
    IS(told.sa_handler == SIG_DFL);
    sink = host[5];
    puts(name);
    fflush(stdout);
    *(volatile int *)8 = 1;
  } else if (is(name, "crashes") || is(name, "killed") || is(name, "crashes-in-handler")) {
    no_core();
    write_later(host, BYTES);
    if (is(name, "crashes-in-handler")) signal(SIGSEGV, faults_again);
    sink = host[5];
    puts(name);
    fflush(stdout);
    if (is(name, "killed")) raise(SIGSEGV);
    *(volatile int *)8 = 1;
  } else if (is(name, "ignored")) {
    write_later(host, BYTES);
    signal(SIGSEGV, SIG_IGN);
    raise(SIGSEGV);
    sink = host[5];
  } else if (is(name, "traps")) {
    write_later(host, 64);
    host[100]++;
    signal(SIGTRAP, counts);
    raise(SIGTRAP);
#ifdef __x86_64__
    __asm__ volatile("int3");
    IS(calls == 2);
#endif
    host[100]++;
    IS(calls > 0 && host[100] == 3);
    no_core();
    signal(SIGTRAP, SIG_DFL);
    puts(name);
    fflush(stdout);
    raise(SIGTRAP);
  } else if (is(name, "masked-after")) {
    write_later(host, BYTES);
    sigfillset(&all);
    OK(sigprocmask(SIG_BLOCK, &all, NULL));
    OK(sigprocmask(SIG_BLOCK, NULL, &asked));
    IS(sigismember(&asked, SIGSEGV) && sigismember(&asked, SIGUSR1));
    OK(pthread_create(&thread, NULL, reads_early, NULL));
    OK(pthread_join(thread, NULL));
    sigemptyset(&all);
    OK(sigprocmask(SIG_SETMASK, &all, &asked));
    IS(sigismember(&asked, SIGTRAP));
    OK(sigprocmask(SIG_SETMASK, NULL, &asked));
    IS(!sigismember(&asked, SIGTRAP));
    /* In handlers that have all signals blocked. */
    write_later(host, BYTES);
    signal(SIGUSR2, reads);
    sigfillset(&all);
    OK(sigprocmask(SIG_BLOCK, &all, NULL));
    raise(SIGUSR2);
    sigdelset(&all, SIGUSR2);
    IS(sigsuspend(&all) == -1 && errno == EINTR && calls == 1);
    memset(&told, 0, sizeof told);
    told.sa_handler = reads;
    sigfillset(&told.sa_mask);
    OK(sigaction(SIGUSR2, &told, NULL));
    sigemptyset(&all);
    OK(sigprocmask(SIG_SETMASK, &all, NULL));
    raise(SIGUSR2);
    IS(calls == 2);
    act(SIGUSR1, opens, 0);
    OK(sigaction(SIGUSR1, NULL, &told));
    IS(sigismember(&told.sa_mask, SIGTRAP) && sigismember(&told.sa_mask, SIGUSR2) && !sigismember(&told.sa_mask, SIGSEGV));
  } else if (is(name, "own-stack")) {
    stack_t small = {0};
    small.ss_size = sysconf(_SC_SIGSTKSZ) > 0 ? sysconf(_SC_SIGSTKSZ) : 16384;
    small.ss_sp = malloc(small.ss_size);
    OK(sigaltstack(&small, NULL));
    write_later(host, BYTES);
    sink = host[5];
    OK(cudaStreamSynchronize(stream));
    IS(host[5] == 7);
  } else if (is(name, "forks")) {
    write_later(host, BYTES);
    child = fork();
    IS(child >= 0);
    if (!child) {
      host[0] = 3;
      sink = host[PAGE];
      _exit(0);
    }
    IS(waitpid(child, &status, 0) == child && status == 0);
    child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (!child) {
      /* Told by nobody. */
      host[0] = 3;
      _exit(0);
    }
    IS(waitpid(child, &status, 0) == child && status == 0);
    OK(cudaStreamSynchronize(stream));
    IS(host[0] == 7);
  } else if (is(name, "threads")) {
    pthread_t threads[8];
    write_later(host, BYTES);
    for (number = 0; number < 8; number++) OK(pthread_create(&threads[number], NULL, reads_early, NULL));
    for (number = 0; number < 8; number++) OK(pthread_join(threads[number], NULL));
    OK(cudaStreamSynchronize(stream));
  } else if (is(name, "cancelled")) {
    int two[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, two));
    write_later(host, BYTES);
    OK(pthread_create(&thread, NULL, reads_socket, two));
    usleep(50000);
    OK(pthread_cancel(thread));
    OK(pthread_join(thread, NULL));
    sink = host[5];
    OK(cudaStreamSynchronize(stream));
  } else if (is(name, "blocked-unseen")) {
    unsigned long bit = 1ul << (SIGSEGV - 1);
    IS(kernel_mask(-1, 0) & bit);
    OK(sigprocmask(SIG_UNBLOCK, &all, NULL));
    IS(!(kernel_mask(-1, 0) & bit));
    OK(sigprocmask(SIG_BLOCK, &all, &asked));
    IS(kernel_mask(-1, 0) & bit && !sigismember(&asked, SIGSEGV));
    IS(write(block_pipe[1], "x", 1) == 1);
    OK(pthread_join(thread, NULL));
  } else if (is(name, "waits")) {
    int two[2];
    char text[100] = {0};
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, two));
    OK(pthread_create(&thread, NULL, receives, two));
    usleep(50000);
    /* Other bytes of the page that the other thread's call waits to write. */
    write_later(host, 1024);
    text[99] = 5;
    IS(send(two[1], text, 100, 0) == 100);
    OK(pthread_join(thread, NULL));
    OK(cudaStreamSynchronize(stream));
    IS(host[0] == 7 && host[2048 + 99] == 5);
  } else if (is(name, "read-after-wait")) {
    /* A page that a call held open is closed again with the next use. */
    int two[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, two));
    IS(send(two[1], host + BYTES / 2, 100, 0) == 100);
    OK(pthread_create(&thread, NULL, receives, two));
    OK(pthread_join(thread, NULL));
    write_later(host, BYTES);
    sink = host[2048];
    OK(cudaStreamSynchronize(stream));
  } else if (is(name, "bad-list")) {
    int two[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, two));
    write_later(host, BYTES);
    IS(writev(two[0], (struct iovec *)8, 2) == -1 && errno == EFAULT);
    IS(sendmsg(two[0], (struct msghdr *)8, 0) == -1 && errno == EFAULT);
    IS(recvmsg(two[0], (struct msghdr *)closed_page(), MSG_DONTWAIT) == -1 && errno == EFAULT);
  } else if (is(name, "jumps")) {
    signal(SIGSEGV, jumps);
    write_later(host, BYTES);
    IS(!can_read() && !can_read_deeper(0) && !can_read_deeper(3) && !can_read());
    IS(calls == 4);
    signal(SIGSEGV, tries_within);
    calls = 0;
    IS(!can_read() && calls == 2);
  } else if (is(name, "cancelled-anywhere")) {
    for (number = 0; number < 100; number++) {
      calls = 0;
      write_later(host, 64);
      OK(pthread_create(&thread, NULL, spins, NULL));
      while (!calls) usleep(10);
      usleep(100 + 7 * number);
      OK(pthread_cancel(thread));
      OK(pthread_join(thread, NULL));
      OK(cudaStreamSynchronize(stream));
    }
  } else if (is(name, "locked")) {
    pthread_t others[3];
    lock = (pthread_mutex_t *)(host + 2048);
    OK(pthread_mutex_init(lock, NULL));
    for (number = 0; number < 3; number++) OK(pthread_create(&others[number], NULL, locks, NULL));
    for (number = 0; number < 50; number++) {
      write_later(host, 64);
      usleep(300);
      OK(cudaStreamSynchronize(stream));
    }
    for (number = 0; number < 3; number++) OK(pthread_join(others[number], NULL));
  } else if (is(name, "in-the-loader")) {
    stream_t other;
    OK(cudaStreamCreateWithFlags(&other, 1));
    OK(pthread_create(&thread, NULL, walks, NULL));
    while (!calls) {
      OK(cudaMemcpyAsync(device + PAGE, device + 2 * PAGE, 64, 3, other));
      OK(cudaStreamSynchronize(other));
    }
    OK(pthread_join(thread, NULL));
  } else if (is(name, "writes-anywhere")) {
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    stream_t other;
    OK(cudaStreamCreateWithFlags(&other, 1));
    null_file = open("/dev/null", O_WRONLY);
    signal(SIGALRM, writes);
    OK(setitimer(ITIMER_REAL, &often, NULL));
    for (number = 0; number < 5000; number++) {
      if (number % 50 == 0) write_later(host, 64);
      OK(cudaMemcpyAsync(device + PAGE, device + 2 * PAGE, 64, 3, other));
      OK(cudaStreamSynchronize(other));
    }
    OK(setitimer(ITIMER_REAL, &never, NULL));
    IS(!failed);
  } else if (is(name, "waited-for")) {
    write_later(host, 64);
    host[100]++;
    sigemptyset(&all);
    sigaddset(&all, SIGTRAP);
    OK(pthread_sigmask(SIG_BLOCK, &all, NULL));
    host[101]++;
    raise(SIGTRAP);
    OK(sigwait(&all, &number));
    IS(number == SIGTRAP && host[101] == 2);
  } else if (is(name, "timer")) {
    struct itimerspec soon = {{0, 0}, {0, 1000000}};
    OK(sem_init(&rung, 0, 0));
    write_later(host, BYTES);
    OK(timer_settime(timer, 0, &soon, NULL));
    OK(sem_wait(&rung));
    OK(cudaStreamSynchronize(stream));
  } else if (is(name, "held")) {
    held();
  } else if (is(name, "interrupted")) {
    interrupted();
  } else if (is(name, "value-of-another-stream")) {
    stream_t other;
    unsigned *flag = (unsigned *)(host + PAGE);
    OK(cudaStreamCreateWithFlags(&other, 1));
    *flag = 0;
    write_later(host, 64);
    OK(cuStreamWriteValue32_v2(other, (uint64_t)(uintptr_t)flag, 3, 0));
    OK(cudaStreamSynchronize(other));
    IS(*flag == 3);
    sink = host[5];
    OK(cudaStreamSynchronize(stream));
  } else if (is(name, "system-calls")) {
    system_calls();
  } else if (is(name, "registered")) {
    char *own = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(cudaHostRegister(own + 100, 3 * PAGE, 0));
    write_later(own + 100, 3 * PAGE);
    /* Pages that are not its alone. */
    own[0] = 3;
    sink = own[PAGE - 1];
    OK(cudaStreamSynchronize(stream));
    IS(own[0] == 3 && own[100] == 7);
    write_later(own + PAGE, PAGE);
    OK(mprotect(own, 4 * PAGE, PROT_READ));
    OK(mprotect(own, 4 * PAGE, PROT_READ | PROT_WRITE));
    own[PAGE] = 3;
    OK(cudaStreamSynchronize(stream));
    OK(cudaHostUnregister(own + 100));
    OK(munmap(own, 4 * PAGE));
  } else if (is(name, "device-reset")) {
    write_later(host, BYTES);
    OK(cudaDeviceReset());
  } else if (is(name, "freed")) {
    write_later(host, BYTES);
    OK(cudaStreamSynchronize(stream));
    write_later(host, BYTES);
    OK(cudaFreeHost(host));
#if defined __x86_64__
  } else if (is(name, "replaced")) {
    replaced();
#endif
  } else {
    return 3;
  }
  puts(name);
  return 0;
}
