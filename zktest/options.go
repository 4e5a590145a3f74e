package zktest

import (
	"fmt"
	"math"
	"time"
)

// Option configures [Start], [NewServer], [StartEnsemble] and [NewEnsemble].
type Option interface{ apply(*config) }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

type config struct {
	tick       time.Duration
	minTimeout time.Duration
	maxTimeout time.Duration
	sweep      time.Duration
	ttl        bool
	maxPacket  int
	logLimit   int
	manual     bool
	addrs      []string
	superUser  string
	syncLimit  time.Duration
	keeper     keeper
	timeLimit  time.Duration
}

func newConfig(opts []Option) (config, error) {
	c := config{
		tick: 100 * time.Millisecond, ttl: true, maxPacket: 0xfffff, logLimit: 1 << 16,
		sweep: time.Minute, timeLimit: 24 * time.Hour,
	}
	for _, o := range opts {
		o.apply(&c)
	}
	if c.tick < time.Millisecond {
		return c, fmt.Errorf("zktest: tick of %v: must be at least 1 ms", c.tick)
	}
	if c.minTimeout == 0 {
		c.minTimeout = 2 * c.tick
	}
	if c.maxTimeout == 0 {
		c.maxTimeout = max(c.minTimeout, 20*c.tick, time.Minute)
	}
	if c.minTimeout < time.Millisecond || c.minTimeout > math.MaxInt32*time.Millisecond || c.maxTimeout < c.minTimeout {
		return c, fmt.Errorf("zktest: session timeouts from %v to %v: the least must be from 1 ms to 2³¹-1 ms (24 days) and not above the greatest", c.minTimeout, c.maxTimeout)
	}
	if c.maxPacket < 1024 {
		return c, fmt.Errorf("zktest: packet limit of %d bytes: must be at least 1024", c.maxPacket)
	}
	return c, nil
}

// WithTick sets the granularity of session timeouts: a session expires at the first tick
// after its last packet plus its timeout. The default is 100 ms; that of a real server is
// 2 s. The option also sets the least session timeout to 2 ticks, unless
// [WithSessionTimeouts] is given.
func WithTick(d time.Duration) Option { return optionFunc(func(c *config) { c.tick = d }) }

// WithSessionTimeouts sets the bounds of session timeouts. A timeout that a client
// requests is raised or lowered to them. The defaults are 2 ticks, and the greater of 20
// ticks and one minute; on a real server they are 2 and 20 ticks.
func WithSessionTimeouts(shortest, longest time.Duration) Option {
	return optionFunc(func(c *config) { c.minTimeout, c.maxTimeout = shortest, longest })
}

// WithSweep sets how often the server looks for empty containers and expired TTL nodes.
// The default is one minute, as on a real server. [Server.Sweep] deletes them
// immediately.
func WithSweep(every time.Duration) Option { return optionFunc(func(c *config) { c.sweep = every }) }

// WithoutTTL disables TTL nodes: the server answers their creation with "unimplemented", as
// real servers do by default.
func WithoutTTL() Option { return optionFunc(func(c *config) { c.ttl = false }) }

// WithMaxPacket sets the greatest size of a request in bytes. If a request is larger, the
// server closes the connection. The default is 1048575, as on a real server.
func WithMaxPacket(n int) Option { return optionFunc(func(c *config) { c.maxPacket = n }) }

// WithLogLimit sets the number of entries that the request log keeps; older entries are
// dropped. The default is 65536; 0 disables the log.
func WithLogLimit(n int) Option { return optionFunc(func(c *config) { c.logLimit = n }) }

// WithSyncLimit sets how long a server that is cut off from the majority serves its
// clients. After that it closes their connections, and rejects new ones, until it is
// healed. The default is 0, no limit, so that the test decides how long clients read an
// old state. The limit of a real server is syncLimit ticks, 10 s by default, which is
// often longer than a session timeout.
func WithSyncLimit(d time.Duration) Option { return optionFunc(func(c *config) { c.syncLimit = d }) }

// WithManualClock stops the server's clock, which then advances only by [Server.Advance]:
// sessions expire and TTL nodes age when the test requests it. Clients use their own
// time. In a synctest bubble the option is not necessary.
func WithManualClock() Option { return optionFunc(func(c *config) { c.manual = true }) }

// WithFakeTimeLimit sets how long, in fake time since the start of the server, a test in
// a synctest bubble may run. After that the test process panics with the stacks of the
// bubble's goroutines, that of the test first. Without a limit, a test that waits for an
// event that never happens runs until the timeout of go test, because the client's timers
// keep running. The default is 24 h; 0 disables the limit. Outside of a bubble the
// option is ignored.
func WithFakeTimeLimit(d time.Duration) Option {
	return optionFunc(func(c *config) { c.timeLimit = d })
}

// WithAddr sets the TCP addresses, host:port, on which the servers listen: the first
// address is for server 0, the second for server 1, and so on. A server without an
// address listens on "127.0.0.1:0", a free port. See [Server.Addr].
func WithAddr(addrs ...string) Option { return optionFunc(func(c *config) { c.addrs = addrs }) }

// WithSuperUser sets a digest credential, "user:password", for which ACLs are not
// checked.
func WithSuperUser(credential string) Option {
	return optionFunc(func(c *config) { c.superUser = credential })
}
