package discovery

import (
	"context"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/latest"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// Choice configures how a [Provider] chooses. The zero value is Curator's default.
type Choice struct {
	// Strategy chooses an instance. The default is RoundRobin.
	Strategy Strategy
	// DownThreshold is the number of reports after which an instance is considered down and
	// skipped. The default is 2.
	DownThreshold int
	// DownTimeout is the time after the first report at which the reports of an instance
	// are discarded. The default is 30 s.
	DownTimeout time.Duration
}

// List is the state of a service.
type List struct {
	// Instances are the enabled instances, sorted by the names of their znodes.
	Instances []Instance
	// Unreadable are the errors of znodes that could not be read as an instance.
	Unreadable []*UnreadableError
	// Err is the reason why the list may be out of date: [ErrTooMany], which is retried,
	// or, in the last element, [recipes.ErrConnClosed] or [recipes.ErrPermission].
	Err error
}

// Provider keeps the instances of a service in memory and chooses among them. Its methods
// may be called from any goroutine. It should be closed.
type Provider struct {
	setup    *recipe.Setup
	dir      string
	sub      *session.Subscription
	strategy Strategy
	down     down
	stop     context.CancelFunc
	ctx      context.Context
	changes  chan List
	over     chan struct{}

	mu   sync.Mutex
	list List
	end  error // why there is no newer list for ever
}

// Provider returns a provider of the instances of a service, and blocks until it has read
// them. A service that does not exist has no instances. If the context is done first,
// Provider returns its cause. It also returns errors of ZooKeeper, such as
// [recipes.ErrPermission]. Programs should keep a provider instead of opening many: watches
// remain until they fire, also after Close.
func (d *Discovery) Provider(ctx context.Context, name string, c Choice) (*Provider, error) {
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	if c.DownThreshold < 0 || c.DownTimeout < 0 {
		return nil, fmt.Errorf("%w: DownThreshold %d, DownTimeout %v: must not be negative", zkerror.ErrInvalidOption, c.DownThreshold, c.DownTimeout)
	}
	if c.Strategy == nil {
		c.Strategy = RoundRobin()
	}
	if c.DownThreshold == 0 {
		c.DownThreshold = 2
	}
	if c.DownTimeout == 0 {
		c.DownTimeout = 30 * time.Second
	}
	standing, stop := context.WithCancel(context.Background())
	p := &Provider{
		setup: d.setup, dir: path.Join(d.setup.Path, name), sub: d.setup.Subscribe(),
		strategy: c.Strategy, down: down{threshold: c.DownThreshold, timeout: c.DownTimeout, reports: map[identity]reports{}},
		ctx: standing, stop: stop, changes: make(chan List, 1), over: make(chan struct{}),
	}
	first := make(chan error, 1)
	w := &watcher{p: p, nodes: map[string]*read{}, events: make(chan fired), first: first}
	go w.run()
	select {
	case err := <-first:
		if err != nil {
			<-p.over
			return nil, recipe.Fail("watch", p.dir, err)
		}
		return p, nil
	case <-ctx.Done():
		stop()
		<-p.over
		return nil, recipe.Fail("watch", p.dir, context.Cause(ctx))
	}
}

// Choose returns one of the instances. It does not block and sends no request. The error is
// [ErrNoInstance], [ErrClosed] after Close, or the error that has ended the provider.
func (p *Provider) Choose() (Instance, error) {
	instances, err := p.Instances()
	if err != nil {
		return Instance{}, err
	}
	if len(instances) == 0 {
		return Instance{}, fmt.Errorf("%w at %s", ErrNoInstance, p.dir)
	}
	return instances[p.strategy.Pick(instances)], nil
}

// Instances returns the instances from which Choose chooses. It does not block. The slice
// must not be modified. Errors are [ErrClosed], and the error that has ended the provider.
func (p *Provider) Instances() ([]Instance, error) {
	p.mu.Lock()
	instances, err := p.list.Instances, p.end
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return slices.Clip(p.down.up(instances)), nil
}

// Report records that an instance did not respond. An instance with several reports is
// skipped for some time; see [Choice]. Reports are not written to ZooKeeper.
func (p *Provider) Report(i Instance) { p.down.report(i.identity()) }

// Changes returns a channel that delivers the current list and each later one, including
// instances that are reported as down. A slow reader receives only the newest list. All
// calls return the same channel, which is closed when the provider has ended. Lists must
// not be modified.
func (p *Provider) Changes() <-chan List { return p.changes }

// Close ends the provider, and blocks until its goroutines have ended or the context is
// done, in which case it returns the context's cause. It may be called repeatedly.
func (p *Provider) Close(ctx context.Context) error {
	p.stop()
	select {
	case <-p.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// publish puts the newest list in place of one that was not read. Only the provider's
// goroutine calls it.
func (p *Provider) publish(l List, end error) {
	p.mu.Lock()
	p.list = l
	p.end = end
	p.mu.Unlock()
	latest.Send(p.changes, l)
}
