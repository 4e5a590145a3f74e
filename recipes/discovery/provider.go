package discovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// List is the state of a service at one time: its instances, and its znodes that could not be read.
type List struct {
	// Instances are the enabled instances, sorted by the names of their znodes.
	Instances []Instance
	// Unreadable are the errors of znodes that could not be read as an instance.
	Unreadable []*UnreadableError
	// Cause is the reason why the list may be out of date, or nil: [recipes.ErrTooLarge] if the
	// list of the znodes exceeds the connection's receive buffer. The list is read again.
	Cause error
	// Err is set only in the last element, and is the reason why the provider has ended:
	// [recipes.ErrConnClosed] or [recipes.ErrPermission].
	Err error
}

// Provider keeps the instances of a service in memory and chooses among them. Its methods
// may be called from any goroutine. It should be closed.
type Provider struct {
	setup    *recipe.Setup
	path     string // path of the znode of the service
	reader   *recipe.ChildReader[entry]
	strategy Strategy
	down     downReports
	stop     context.CancelFunc
	ended    chan struct{} // closed when the goroutine has ended

	mu       sync.Mutex
	list     List
	watching map[chan List]struct{} // the channels of Watch, each of capacity 1
	err      error                  // the reason why the provider has ended; nil before
}

// Provider returns a provider of the instances of a service, and blocks until it has read
// them. For a service that does not exist the result is empty. If the context is done first,
// Provider returns its cause. It also returns errors of ZooKeeper, such as
// [recipes.ErrPermission]. Programs should keep a provider instead of opening many: watches remain
// until they fire, also after Close.
func (d *Discovery) Provider(ctx context.Context, name string, opts ...ProviderOption) (*Provider, error) {
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	var c providerSettings
	err := recipe.EachOption(opts, func(o ProviderOption) error { o.applyProvider(&c); return nil })
	if err == nil {
		err = c.complete()
	}
	if err != nil {
		return nil, err
	}
	service := d.service(name)
	maintained, stop := context.WithCancel(context.Background())
	p := &Provider{
		setup: d.setup, path: service.Path, reader: recipe.NewChildReader(d.setup, service, false), strategy: c.strategy,
		down: downReports{threshold: c.downReports, timeout: c.downTimeout, reports: map[identity]reportCount{}},
		stop: stop, watching: map[chan List]struct{}{}, ended: make(chan struct{}),
	}
	ready := make(chan error, 1)
	go p.run(maintained, ready)
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		stop()
		<-p.ended
		return nil, p.setup.Fail("watch", p.path, err)
	}
	return p, nil
}

// Choose returns one of the instances. It does not block and sends no request. The error is
// [ErrNoInstance], [recipes.ErrClosed] after Close, or the error that has ended the provider.
func (p *Provider) Choose() (Instance, error) {
	instances, err := p.Instances()
	if err != nil {
		return Instance{}, err
	}
	if len(instances) == 0 {
		return Instance{}, fmt.Errorf("%w at %s", ErrNoInstance, p.path)
	}
	return instances[p.strategy.Pick(instances)], nil
}

// Instances returns the instances from which Choose chooses. It does not block. The slice
// must not be modified. Errors are [recipes.ErrClosed], and the error that has ended the provider.
func (p *Provider) Instances() ([]Instance, error) {
	p.mu.Lock()
	instances, err := p.list.Instances, p.err
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return slices.Clip(p.down.availableInstances(instances)), nil
}

// Report records that an instance did not respond. An instance with several reports is
// skipped for some time; see [WithDownAfter]. Reports are not written to ZooKeeper.
func (p *Provider) Report(i Instance) { p.down.add(i.identity()) }

// Watch returns a channel that delivers the current list and each later one, including
// instances that are reported as down. A slow reader receives only the newest list. The channel
// is closed, without an Err, after the context is done or the provider was closed. Lists must
// not be modified.
func (p *Provider) Watch(ctx context.Context) <-chan List {
	lists := make(chan List, 1)
	p.mu.Lock()
	lists <- p.list
	p.watching[lists] = struct{}{}
	p.mu.Unlock()
	go func() {
		select {
		case <-ctx.Done():
		case <-p.ended:
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watching, lists)
		close(lists)
	}()
	return lists
}

// Close ends the provider, and returns nil when its goroutines have ended. It blocks for at
// most two seconds; if a request is still in flight then, it returns an error that wraps
// [recipes.ErrUnconfirmed]. It may be called repeatedly.
func (p *Provider) Close() error {
	p.stop()
	if !limit.Await(p.ended, time.Now().Add(limit.Confirm)) {
		return p.setup.Fail("close the provider of", p.path, fmt.Errorf("%w: %w", recipes.ErrUnconfirmed, limit.ErrConfirm))
	}
	return nil
}

// run keeps the list current until ctx is done or the list cannot be read. ready receives nil when
// the provider has read the list, or the reason why it cannot.
func (p *Provider) run(ctx context.Context, ready chan<- error) {
	defer close(p.ended)
	defer p.reader.Close()
	defer p.stop()
	list, err := p.read(ctx)
	if err != nil {
		ready <- err
		return
	}
	p.report(event.Event{Kind: event.Opened})
	defer func() { p.report(event.Event{Kind: event.Ended, Err: p.err}) }()
	p.publish(list)
	ready <- nil
	list, err = p.follow(ctx, list)
	if ctx.Err() != nil {
		p.setErr(recipes.ErrClosed)
		return
	}
	list.Cause, list.Err = nil, connection.Refine(p.setup.Conn, err)
	p.setup.Log.Warn("provider ended", "path", p.path, "err", list.Err)
	p.setErr(list.Err)
	p.publish(list)
}

// setErr sets the error that Choose and Instances return from now on.
func (p *Provider) setErr(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// tooManyPause is the time after which the provider again reads a list that was larger than the connection
// accepts.
const tooManyPause = 10 * time.Second

// follow publishes each change of the list. It returns the last list, and the reason why it cannot
// continue.
func (p *Provider) follow(ctx context.Context, list List) (List, error) {
	for {
		var retry <-chan time.Time
		if list.Cause != nil {
			retry = time.After(tooManyPause)
		}
		if err := p.reader.Wait(ctx, retry); err != nil {
			return list, err
		}
		next, err := p.read(ctx)
		switch {
		case errors.Is(err, recipes.ErrTooLarge):
			next = list
			next.Cause = err
		case err != nil:
			return list, err
		}
		if !next.equal(list) {
			p.publish(next)
		}
		list = next
	}
}

// read returns the enabled instances of the service. It adds znodes that cannot be decoded to List.Unreadable.
func (p *Provider) read(ctx context.Context) (l List, err error) {
	entries, err := p.reader.Read(ctx)
	if err != nil {
		return l, err
	}
	for _, e := range sortedEntries(entries) {
		switch {
		case e.unreadable != nil:
			l.Unreadable = append(l.Unreadable, e.unreadable)
		case !e.instance.Disabled:
			l.Instances = append(l.Instances, e.instance)
		}
	}
	return l, nil
}

// publish makes l the current list, and sends it to the channels of Watch. In each channel it replaces a list that
// was not received.
func (p *Provider) publish(l List) {
	for _, u := range l.Unreadable {
		p.setup.Log.Warn("instance skipped", "path", u.Path, "err", u.Err)
	}
	if l.Err == nil && l.Cause == nil {
		p.report(event.Event{Kind: event.Listed, Count: len(l.Instances)})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = l
	for lists := range p.watching {
		limit.SendNewest(lists, l)
	}
}

// report emits an event of the service.
func (p *Provider) report(e event.Event) {
	e.Path = p.path
	p.setup.Report("discovery", e)
}

// equal reports whether two lists have the same content.
func (l List) equal(other List) bool {
	return fmt.Sprint(l.Cause) == fmt.Sprint(other.Cause) && slices.EqualFunc(l.Instances, other.Instances, Instance.equal) &&
		slices.EqualFunc(l.Unreadable, other.Unreadable, func(a, b *UnreadableError) bool { return a.Error() == b.Error() })
}
