package main

import (
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/go-leaderelection/leaderelection/cmd/internal/child"
)

// maxConnections is the maximum number of connections to --listen.
const maxConnections = 32

// reserveDescriptors reserves file descriptors for the start of commands, and returns the maximum number of
// connections to --listen. Every run must call reserveDescriptors, because even without --listen the clients of a
// raftlog peer can use up all descriptors.
func reserveDescriptors() (connections int) {
	descriptors, err := child.ReserveDescriptors()
	if err != nil { // the error means that all descriptors are in use, or that the system is not Unix
		return maxConnections
	}
	return connectionLimit(descriptors)
}

// connectionLimit returns the maximum number of connections to --listen for a process with the given maximum number
// of file descriptors. The remaining descriptors are for the backend, the commands and the program.
func connectionLimit(descriptors uint64) int {
	return int(min(maxConnections, max(1, descriptors/4)))
}

// connections limits the connections of an HTTP server. If a new connection exceeds the limit, the connection that
// has been idle for the longest time is closed, or the new connection if none is idle.
type connections struct {
	limit int

	mu   sync.Mutex
	open []connection // the open connections, in the order of their last change
}

type connection struct {
	net.Conn
	active bool // whether a request is in progress
}

// change is the ConnState function of the server, which calls it for a new connection before it accepts another.
func (c *connections) change(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = slices.DeleteFunc(c.open, func(o connection) bool { return o.Conn == conn })
	if state == http.StateClosed || state == http.StateHijacked {
		return
	}
	c.open = append(c.open, connection{conn, state == http.StateActive})
	if len(c.open) > c.limit {
		idle := max(0, slices.IndexFunc(c.open, func(o connection) bool { return !o.active }))
		_ = c.open[idle].Close()
		c.open = slices.Delete(c.open, idle, idle+1)
	}
}
