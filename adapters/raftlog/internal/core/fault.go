package core

import (
	"fmt"
	"runtime/debug"
)

// Fault is the value with which a peer panics when it must stop: its log contradicts the log of the
// cluster or cannot be read, or the engine has panicked.
type Fault struct{ Err error }

func (f Fault) Error() string { return f.Err.Error() }

// containPanic, deferred by functions that call the engine, turns any panic into a Fault. The engine
// panics with values of several types if its checks fail, and so does the runtime. The cause is the
// state of this peer, so the process need not end. No code of users runs here, because state
// machines have a separate goroutine.
func containPanic() {
	if r := recover(); r != nil {
		panic(asFault(r))
	}
}

// asFault returns a recovered value as a Fault. It adds the stack if the value is not a Fault.
func asFault(r any) Fault {
	if f, ok := r.(Fault); ok {
		return f
	}
	return Fault{fmt.Errorf("panic: %v\n%s", r, debug.Stack())}
}
