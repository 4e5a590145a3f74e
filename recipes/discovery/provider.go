package discovery

import (
	"context"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/sentinel"
	"github.com/go-leaderelection/leaderelection/internal/session"
	"github.com/go-leaderelection/leaderelection/internal/setup"
)

// Choice is how a [Provider] chooses. The zero value is Curator's default.
type Choice struct {
	Strategy Strategy // nil: RoundRobin
	// An instance that was reported as down DownThreshold times (0: twice) is
	// skipped, until DownTimeout (0: 30 s) after the first report; then its
	// reports are forgotten.
	DownThreshold int
	DownTimeout   time.Duration
}

// List is the state of a service.
type List struct {
	// Instances are those that are enabled, in the order of their znodes' names.
	Instances []Instance
	// Unreadable are the znodes that could not be read as an instance.
	Unreadable []*UnreadableError
	// Err says why the list is not the newest: [ErrTooMany], which is tried again,
	// or, in the last element, [recipes.ErrConnClosed] or [recipes.ErrPermission].
	Err error
}

// Provider has the instances of a service in memory and chooses among them. Its
// methods may be called from any goroutine.
type Provider struct {
	at       *setup.Setup
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

// Provider returns a provider of the service's instances, and has read them by then,
// or returns the context's cause, or what ZooKeeper refuses. A service that does not
// exist is one without instances. Open one for a service and keep it: its watches
// stay in the client library until they fire, also after Close.
func (d *Discovery) Provider(ctx context.Context, name string, c Choice) (*Provider, error) {
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	if c.DownThreshold < 0 || c.DownTimeout < 0 {
		return nil, fmt.Errorf("%w: DownThreshold %d, DownTimeout %v", sentinel.ErrInvalidOption, c.DownThreshold, c.DownTimeout)
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
		at: d.at, dir: path.Join(d.at.Path, name), sub: d.at.Subscribe(),
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
			return nil, setup.Fail("watch", p.dir, err)
		}
		return p, nil
	case <-ctx.Done():
		stop()
		<-p.over
		return nil, setup.Fail("watch", p.dir, context.Cause(ctx))
	}
}

// Choose returns one of the instances, from memory: it sends no request and does not
// wait. The error is ErrNoInstance, ErrClosed after Close, or what ended the list.
func (p *Provider) Choose() (Instance, error) {
	instances, err := p.Instances()
	if err != nil {
		return Instance{}, err
	}
	if len(instances) == 0 {
		return Instance{}, fmt.Errorf("%w of %s", ErrNoInstance, p.dir)
	}
	return instances[p.strategy.Pick(instances)], nil
}

// Instances returns those that Choose chooses from, from memory. The slice must not
// be changed.
func (p *Provider) Instances() ([]Instance, error) {
	p.mu.Lock()
	instances, err := p.list.Instances, p.end
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return slices.Clip(p.down.up(instances)), nil
}

// Report says that an instance did not work. After some reports it is skipped for a
// while; see [Choice]. Nothing is written to ZooKeeper.
func (p *Provider) Report(i Instance) { p.down.report(i.identity()) }

// Changes delivers the list as it is and whenever it has changed: a reader that is
// late gets the newest one. Those reported as down are in it. It is closed once, when
// the provider is over. What it delivers must not be changed.
func (p *Provider) Changes() <-chan List { return p.changes }

// Close ends the provider and returns when nothing of it runs any more, or the
// context's cause; calling it again does no harm.
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
	select {
	case <-p.changes:
	default:
	}
	p.changes <- l
}
