package zktest

import (
	"fmt"
	"time"
)

// Option is a setting of [Start], [New], [Cluster] and [NewEnsemble].
type Option func(*config)

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
		o(&c)
	}
	if c.tick < time.Millisecond {
		return c, fmt.Errorf("zktest: tick of %v: it must be at least 1 ms", c.tick)
	}
	if c.minTimeout == 0 {
		c.minTimeout = 2 * c.tick
	}
	if c.maxTimeout == 0 {
		c.maxTimeout = max(c.minTimeout, 20*c.tick, time.Minute)
	}
	if c.minTimeout < time.Millisecond || c.maxTimeout < c.minTimeout {
		return c, fmt.Errorf("zktest: session timeouts from %v to %v", c.minTimeout, c.maxTimeout)
	}
	if c.maxPacket < 1024 {
		return c, fmt.Errorf("zktest: a largest packet of %d bytes: it must be at least 1024", c.maxPacket)
	}
	return c, nil
}

// WithTick sets the granularity of session time: a session ends at the first
// tick after its last packet plus its timeout. Default 100 ms, a real server's
// is 2 s. It also sets the shortest session timeout to 2 ticks, unless
// [WithSessionTimeouts] is given.
func WithTick(d time.Duration) Option { return func(c *config) { c.tick = d } }

// WithSessionTimeouts sets the bounds into which the timeout that a client asks
// for is brought. Default 2 ticks, and the larger of 20 ticks and a minute; with
// a real server 2 and 20 ticks.
func WithSessionTimeouts(shortest, longest time.Duration) Option {
	return func(c *config) { c.minTimeout, c.maxTimeout = shortest, longest }
}

// WithSweep sets how often empty containers and old TTL nodes are looked for.
// Default a minute, as with a real server. [Server.Sweep] does it at once.
func WithSweep(every time.Duration) Option { return func(c *config) { c.sweep = every } }

// WithoutTTL makes the server answer the creation of TTL nodes as a real one
// does by default: with "unimplemented".
func WithoutTTL() Option { return func(c *config) { c.ttl = false } }

// WithMaxPacket sets the largest request, in bytes. A longer one closes its
// connection. Default 1048575, as with a real server.
func WithMaxPacket(n int) Option { return func(c *config) { c.maxPacket = n } }

// WithLogLimit sets how many entries the request log keeps, the newest ones.
// Default 65536; 0 keeps none.
func WithLogLimit(n int) Option { return func(c *config) { c.logLimit = n } }

// WithSyncLimit sets for how long a server that is cut off from the majority serves
// its clients. Then it closes their connections, and new ones at once, until it is
// healed. Default 0: it never gives up, so that a test decides for how long somebody
// reads an old state. A real one gives up after syncLimit ticks, 10 s by default,
// which is often longer than a session lives.
func WithSyncLimit(d time.Duration) Option { return func(c *config) { c.syncLimit = d } }

// WithManualClock makes the server's time stand still but for [Server.Advance]:
// sessions end, and TTL nodes grow old, when the test says so. Clients keep their
// own time. In a synctest bubble it is not needed.
func WithManualClock() Option { return func(c *config) { c.manual = true } }

// WithFakeTimeLimit sets for how long a test in a synctest bubble may run, of fake time from
// the start of the server. After that the test process panics with the stacks of the
// goroutines in the bubble, that of the test first. Without a limit a test that waits for
// something that never happens runs, as the timers of the client go on, until the timeout
// of go test. Default 24 h; 0 sets no limit. Outside of a bubble there is none.
func WithFakeTimeLimit(d time.Duration) Option { return func(c *config) { c.timeLimit = d } }

// WithAddr sets the TCP addresses, host:port, that the servers listen on: the first address
// is that of server 0 and so on. A server without one listens on "127.0.0.1:0", a free
// port. See [Server.Addr].
func WithAddr(addrs ...string) Option { return func(c *config) { c.addrs = addrs } }

// WithSuperUser names a digest credential, "user:password", that may do
// anything whatever the ACL says.
func WithSuperUser(credential string) Option { return func(c *config) { c.superUser = credential } }
