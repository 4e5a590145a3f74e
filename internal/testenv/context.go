package testenv

import (
	"context"
	"sync/atomic"
)

// Context is a context that is never done. It counts the functions of context.AfterFunc and the derived contexts that
// are registered with the Context, so that a test can find registrations that are never stopped.
type Context struct {
	context.Context
	registered atomic.Int64
}

// NewContext returns a context without registrations.
func NewContext() *Context { return &Context{Context: context.Background()} }

// Done returns a channel that is never closed. The channel is not nil, because package context registers nothing
// with a context whose channel is nil.
func (c *Context) Done() <-chan struct{} { return never }

var never = make(chan struct{})

// AfterFunc counts a registration. Package context calls this method.
func (c *Context) AfterFunc(func()) (stop func() bool) {
	c.registered.Add(1)
	var stopped atomic.Bool
	return func() bool {
		first := stopped.CompareAndSwap(false, true)
		if first {
			c.registered.Add(-1)
		}
		return first
	}
}

// Registered returns the number of registrations that were not stopped.
func (c *Context) Registered() int { return int(c.registered.Load()) }
