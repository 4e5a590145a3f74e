package core

import (
	"fmt"
	"runtime/debug"
)

// Fault is what a peer panics with when it must not go on: its log contradicts the
// cluster's, or cannot be read, or the engine has panicked.
type Fault struct{ Err error }

func (f Fault) Error() string { return f.Err.Error() }

// contain, deferred by what calls the engine, makes any panic a Fault: the engine has checks
// that panic with whatever is at hand, and so has the runtime. They are about this peer's
// state, and no reason to end the process in which it is. No code of users runs here: their
// state machines have a goroutine of their own.
func contain() {
	if r := recover(); r != nil {
		panic(faultOf(r))
	}
}

// faultOf is what was recovered, as a Fault; unless it was one, with the stack.
func faultOf(r any) Fault {
	if f, ok := r.(Fault); ok {
		return f
	}
	return Fault{fmt.Errorf("panic: %v\n%s", r, debug.Stack())}
}
