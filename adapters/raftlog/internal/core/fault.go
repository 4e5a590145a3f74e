package core

import (
	"fmt"
	"runtime/debug"
)

// Fault is the value with which a Core panics when the peer must stop: its log contradicts the log of
// the cluster or cannot be read, or the engine has panicked.
type Fault struct{ Err error }

func (f Fault) Error() string { return f.Err.Error() }

// containPanic turns any panic into a panic with a Fault. Functions that call the engine defer it. The engine
// panics with values of several types if its checks fail, and so does the runtime. Only this peer must stop
// then, and not the process, because the cause is the state of this peer. No code of users can have panicked,
// because state machines run on a separate goroutine.
func containPanic() {
	if r := recover(); r != nil {
		panic(asFault(r))
	}
}

// asFault returns a recovered value as a Fault. It adds the stack if the value was not a Fault.
func asFault(r any) Fault {
	if f, ok := r.(Fault); ok {
		return f
	}
	return Fault{fmt.Errorf("panic: %v\n%s", r, debug.Stack())}
}
