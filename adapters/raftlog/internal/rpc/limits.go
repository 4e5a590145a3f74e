package rpc

import (
	"fmt"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// These constants limit what the clients of this peer occupy. docs/raftlog.md lists them.
const (
	// maxFrame is the maximum size of a frame that a client sends: an update and its header.
	maxFrame = wire.MaxData + 1<<20
	// frameStall is the time within which the next 64 KiB of a frame must arrive, or the rest of the frame if
	// that is less.
	frameStall = 5 * time.Second
	// freeFrame is the size up to which the server receives a request without reserving memory. It is
	// also the total size of the requests and replies that each connection may always have in progress.
	freeFrame = 128 << 10
	// freeReply is the size up to which a reply does not count towards the load of a client.
	freeReply = 4 << 10
	// ownCalls is the number of calls that each connection may always have in progress.
	ownCalls = 16
	// A connection that exceeds a limit remains open for at most rejectLimit: its first request
	// receives the reason, unless the request is larger than maxRejected. If maxRejections such
	// connections are already open, the server closes the connection immediately.
	rejectLimit   = 2 * time.Second
	maxRejected   = 64 << 10
	maxRejections = 64
	// callsIdle is the time without a frame after which the server closes a connection for calls. A
	// client sends pings much more often while calls are pending, and connects again for its next call.
	callsIdle = 10 * time.Minute
	// callsStall is the time after which the server closes a connection for calls whose client does not
	// read the replies.
	callsStall = 10 * time.Second
)

// load counts what one connection, all connections from one address, or all clients occupy.
type load struct {
	conns, streams int
	calls          int   // the number of calls in progress
	memory         int64 // the total size of the requests and the replies in progress, in bytes
}

// These are the maximum loads of one connection, of one address and of all clients. maxCalls is a further
// limit for the calls of one connection.
var (
	maxConnLoad    = load{memory: 2*maxFrame - 1<<20}
	maxAddressLoad = load{conns: 256, streams: 64, calls: 4 << 10, memory: 2 * maxFrame}
	maxTotalLoad   = load{conns: 1024, streams: 256, calls: 8 << 10, memory: 64 << 20}
)

// add returns the sum of the loads l and more.
func (l load) add(more load) load {
	return load{l.conns + more.conns, l.streams + more.streams, l.calls + more.calls, l.memory + more.memory}
}

// subtract returns the difference of the loads l and less.
func (l load) subtract(less load) load {
	return load{l.conns - less.conns, l.streams - less.streams, l.calls - less.calls, l.memory - less.memory}
}

// checkIncrease returns an error if the load would exceed a limit when it grows by more. The error names the
// limit, and whose load it is. Parts of the load that do not grow are not checked.
func (l load) checkIncrease(more, limit load, whose string) error {
	sum := l.add(more)
	for _, c := range []struct {
		more, sum, limit int64
		what             string
	}{
		{int64(more.conns), int64(sum.conns), int64(limit.conns), "%d connections"},
		{int64(more.streams), int64(sum.streams), int64(limit.streams), "%d streams"},
		{int64(more.calls), int64(sum.calls), int64(limit.calls), "%d calls in progress"},
		{more.memory, sum.memory, limit.memory, "%d bytes of requests and replies in progress"},
	} {
		if c.more > 0 && c.limit > 0 && c.sum > c.limit {
			return fmt.Errorf("%w: the peer serves at most "+c.what+" of %s: try again later, or use fewer", api.ErrBusy, c.limit, whose)
		}
	}
	return nil
}

// checkClient returns an error if a connection must not increase its load by more. The other parameters are the
// loads of the connection, of its address and of all clients. Each connection may always make a few calls, and
// small requests and replies, so that these succeed while other clients use up the limits.
func checkClient(own, address, total, more load) error {
	if more.calls > 0 && own.calls < ownCalls || more.memory > 0 && own.memory+more.memory <= freeFrame {
		return nil
	}
	if err := own.checkIncrease(more, maxConnLoad, "one connection"); err != nil {
		return err
	}
	if err := address.checkIncrease(more, maxAddressLoad, "one address"); err != nil {
		return err
	}
	return total.checkIncrease(more, maxTotalLoad, "all clients")
}

// usage counts the load of all clients, and the load of each address. Any goroutine may call its
// methods, and those of its clients.
type usage struct {
	mu        sync.Mutex
	total     load
	addresses map[string]load
}

// client counts the load of one connection of a client.
type client struct {
	usage   *usage
	address string
	own     load
}

// addClient returns a client for a new connection from an address, and adds the load l to it. It returns an
// error if l exceeds a limit. The caller must close the client even after an error.
func (u *usage) addClient(address string, l load) (*client, error) {
	c := &client{usage: u, address: address}
	return c, c.addLoad(l)
}

// addLoad increases the load of the client by more, unless that exceeds a limit.
func (c *client) addLoad(more load) error {
	u := c.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := checkClient(c.own, u.addresses[c.address], u.total, more); err != nil {
		return err
	}
	c.addToLoads(more)
	return nil
}

// release reduces the load of the client by less, which addLoad has added.
func (c *client) release(less load) {
	c.usage.mu.Lock()
	defer c.usage.mu.Unlock()
	c.addToLoads(load{}.subtract(less))
}

// close removes the whole load of the client, whose connection has ended.
func (c *client) close() {
	c.usage.mu.Lock()
	defer c.usage.mu.Unlock()
	c.addToLoads(load{}.subtract(c.own))
}

// addToLoads adds the load by to the loads of the client, of its address, and of all clients. The caller holds
// usage.mu.
func (c *client) addToLoads(by load) {
	u := c.usage
	c.own, u.total = c.own.add(by), u.total.add(by)
	if l := u.addresses[c.address].add(by); l != (load{}) {
		u.addresses[c.address] = l
	} else {
		delete(u.addresses, c.address)
	}
}

// frameLimits returns the limits for the frames that the server receives from the client.
func (c *client) frameLimits() link.FrameLimits {
	return link.FrameLimits{
		Max: maxFrame, Stall: frameStall, Free: freeFrame,
		Reserve: func(size int) error { return c.addLoad(load{memory: int64(size)}) },
	}
}
