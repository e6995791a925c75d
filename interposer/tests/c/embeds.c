// A program with Python inside: runs a script twice, in two lives of the interpreter, and
// makes calls of its own before, between and after.
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

int cudaFree(void *pointer);

static void (*Py_Initialize_)(void);
static int (*PyRun_SimpleString_)(const char *);
static int (*Py_FinalizeEx_)(void);

static void *other_thread(void *unused)
{
    cudaFree(NULL);
    return unused;
}

__attribute__((noinline)) int run_script(const char *script)
{
    Py_Initialize_();
    int status = PyRun_SimpleString_(script);
    pthread_t thread;
    pthread_create(&thread, NULL, other_thread, NULL);
    pthread_join(thread, NULL);
    return Py_FinalizeEx_() | status;
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    cudaFree(NULL);
    void *python = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
    if (!python) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    *(void **)&Py_Initialize_ = dlsym(python, "Py_Initialize");
    *(void **)&PyRun_SimpleString_ = dlsym(python, "PyRun_SimpleString");
    *(void **)&Py_FinalizeEx_ = dlsym(python, "Py_FinalizeEx");
    // Which keeps the two calls one place in the code.
    volatile int lives = 2;
    int status = 0;
    for (int life = 0; life < lives; life++) {
        status |= run_script(arguments[2]);
        cudaFree(NULL);
    }
    dlclose(python);
    cudaFree(NULL);
    puts("embeds");
    return status ? 4 : 0;
}
