// Leaving the GIL and taking it again, on threads that may outlive the interpreter.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <new>

// Before 3.14, Python ends a thread that asks for the GIL of an interpreter that is ending: it unwinds the thread's stack, through destructors that
// run without the GIL, and through functions that must not throw, where it ends the process instead (std::terminate). Such a thread stays where it
// is, as in later Pythons: the process ends without it.
//
// The stack is unwound by the machine's libgcc_s, which hands its state to the unwinder that is linked into this module. That one has its tables once
// something was thrown, so the module throws when it is imported: prepare_for_the_end().
inline bool prepare_for_the_end() {
  try {
    throw std::bad_alloc();
  } catch (const std::bad_alloc &thrown) {
    return thrown.what() != nullptr;
  }
}

inline void take_gil(PyThreadState *state) {
  try {
    PyEval_RestoreThread(state);
  } catch (...) {
    for (;;) pause();
  }
}

inline PyGILState_STATE ensure_gil() {
  try {
    return PyGILState_Ensure();
  } catch (...) {
    for (;;) pause();
  }
}

/* Without the GIL while it lives. */
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() { take_gil(state_); }
  Unlocked(const Unlocked &) = delete;
  Unlocked &operator=(const Unlocked &) = delete;

 private:
  PyThreadState *state_;
};
