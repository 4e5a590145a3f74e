package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	shared "github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// performance is one schedule under way.
type performance struct {
	schedule
	ensemble *zktest.Ensemble
	conn     *zk.Conn // the cache's
	writer   *zk.Conn
	cache    *Cache
	reader   *reader
	slowDown chan struct{} // closed when lazy readers begin to keep up
	hooks    []*zktest.Hook
	heals    []*time.Timer
	down     []bool
	begin    time.Time

	mu      sync.Mutex
	faults  []string
	history strings.Builder
}

func playGuarded(t *testing.T, seed uint64) (p *performance) {
	s := newSchedule(seed)
	watchdog := time.AfterFunc(time.Minute, func() { fmt.Fprintf(os.Stderr, "stuck: %v\n", s) })
	defer watchdog.Stop()
	synctest.Test(t, func(t *testing.T) {
		p = &performance{schedule: s, down: make([]bool, s.servers), begin: time.Now(), slowDown: make(chan struct{})}
		p.play(t)
	})
	return p
}

func (p *performance) note(format string, args ...any) {
	if *oneSeed == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(&p.history, "%10v %s\n", time.Since(p.begin), fmt.Sprintf(format, args...))
}

func (p *performance) fault(format string, args ...any) {
	p.note(format, args...)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}

func (p *performance) each(f func(*zktest.Server)) {
	for i := range p.ensemble.Len() {
		f(p.ensemble.Server(i))
	}
}

func (p *performance) play(t *testing.T) {
	limit := 0
	if *oneSeed != 0 {
		limit = 1 << 16
	}
	p.ensemble = zktest.Cluster(t, p.servers, zktest.WithTick(p.tick), zktest.WithSessionTimeouts(p.timeout, time.Minute),
		zktest.WithSyncLimit(5*p.tick), zktest.WithLogLimit(limit))
	p.each(func(s *zktest.Server) { s.Delay(zktest.BothWays, p.latency) })
	var err error
	if p.writer, _, err = p.ensemble.Connect(time.Minute); err == nil {
		p.conn, _, err = p.ensemble.Connect(p.timeout, zk.WithMaxBufferSize(64<<10))
	}
	if err != nil {
		t.Fatal(err)
	}
	p.open()

	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() { p.write(ctx, rand.New(rand.NewPCG(p.seed, 2))) })
	busy.Go(func() { p.sync(ctx) })
	for _, s := range p.steps {
		p.watch(s.wait)
		p.do(s)
	}
	p.heal()
	cancel()
	busy.Wait()
	close(p.slowDown)
	p.settle("after all faults")
	p.poke()
	p.settle("after further changes")
	p.countChannels()
	p.close()
	if *oneSeed != 0 {
		for _, e := range p.ensemble.Server(0).Log() {
			if e.Op != zktest.OpPing {
				fmt.Fprintf(&p.history, "%10v     server %d: %v\n", e.Time.Sub(p.begin), e.Server, e)
			}
		}
	}
}

func (p *performance) open() {
	c, err := New(p.conn, top, p.scope, recipes.WithSessionTimeout(p.timeout), WithConcurrency(p.concurrency))
	if err != nil {
		panic(err)
	}
	r := newReader()
	lazy := rand.New(rand.NewPCG(p.seed, 3))
	go func() {
		defer close(r.ended)
		for e := range c.Events() {
			p.note("    %s %x", text(e), max(e.Node.Stat.Czxid, e.Old.Stat.Czxid))
			r.apply(c, e)
			if p.lazy {
				select {
				case <-p.slowDown:
				case <-time.After(someTime(lazy, p.timeout)):
				}
			}
		}
	}()
	p.mu.Lock()
	p.cache, p.reader = c, r
	p.mu.Unlock()
}

func (p *performance) close() {
	p.cache.Close()
	<-p.reader.ended
	for _, f := range p.reader.faults {
		p.fault("%s", f)
	}
}

// write changes the tree until the context ends.
func (p *performance) write(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		path, what, depth := top, r.IntN(10), r.IntN(5)
		if what >= 7 && r.IntN(4) > 0 {
			depth = max(depth, 1) // the top goes seldom
		}
		for ; depth > 0; depth-- {
			path += "/" + string(rune('a'+r.IntN(3)))
		}
		p.note("  write %d %s", what, path)
		switch {
		case what < 4:
			flags := int32(0)
			if r.IntN(6) == 0 {
				flags = zk.FlagEphemeral
			}
			_, _ = p.writer.Create(path, []byte(strconv.Itoa(r.IntN(100))), flags, open)
		case what < 7:
			_, _ = p.writer.Set(path, []byte(strconv.Itoa(r.IntN(100))), -1)
		case what < 8:
			_ = p.writer.Delete(path, -1)
		default:
			// The same again: versions as before.
			if names := p.removeAll(path); what == 9 {
				for i := len(names) - 1; i >= 0; i-- {
					_, _ = p.writer.Create(names[i], []byte("same"), 0, open)
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(someTime(r, p.pace)):
		}
	}
}

// removeAll deletes a subtree and returns its paths, those below first.
func (p *performance) removeAll(path string) (paths []string) {
	names, _, err := p.writer.Children(path)
	if err != nil {
		return nil
	}
	for _, name := range names {
		paths = append(paths, p.removeAll(path+"/"+name)...)
	}
	_ = p.writer.Delete(path, -1)
	return append(paths, path)
}

// sync checks that what was committed before a Sync is in memory after it.
func (p *performance) sync(ctx context.Context) {
	for ctx.Err() == nil {
		stat, err := p.writer.Set(top, []byte("mark"), -1)
		p.mu.Lock()
		c := p.cache
		p.mu.Unlock()
		within, cancel := context.WithTimeout(ctx, 2*p.timeout)
		if synced := c.Sync(within); synced == nil && err == nil {
			p.note("  synced to %d", stat.Mzxid)
			// It may have been deleted since.
			if z, ok := c.Get(top); ok && z.Stat.Mzxid < stat.Mzxid && z.Err == nil {
				p.fault("synced to %x, but memory has %x", stat.Mzxid, z.Stat.Mzxid)
			}
		}
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(p.timeout / 3):
		}
	}
}

func (p *performance) do(s step) {
	session := p.conn.SessionID()
	server := p.ensemble.Server(s.n % p.servers)
	p.note("%v (n %d, for %v), session %x", s.kind, s.n, s.last, session)
	switch s.kind {
	case drop:
		p.each(func(x *zktest.Server) { x.DropConnections(session) })
	case dropAll:
		server.DropConnections()
	case cutReply, cutRequest, throttle:
		op := []zktest.Op{zktest.OpGetData, zktest.OpGetChildren2, zktest.OpGetChildren2, zktest.OpExists, zktest.OpSync, zktest.OpSetWatches, zktest.OpAny}[s.n%7]
		match := zktest.Match{Op: op, Session: session, Nth: 1 + s.n/10%4}
		hook, what := p.ensemble.Server(0).After, zktest.HookFunc(zktest.Cut)
		switch s.kind {
		case cutRequest:
			hook = p.ensemble.Server(0).Before
		case throttle:
			match.Op, match.Nth = zktest.OpSetWatches, 1+s.n%2
			hook, what = p.ensemble.Server(0).Before, zktest.Fail(zktest.Code(-127))
		}
		p.hooks = append(p.hooks, hook(match, what))
	case blackhole:
		dir := []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.BothWays}[s.n%3]
		p.each(func(x *zktest.Server) { x.Blackhole(dir, session) })
		p.later(s.last, func() { p.healSession(session) })
	case slow:
		p.each(func(x *zktest.Server) { x.Delay(zktest.BothWays, s.last/8, session) })
		p.later(2*s.last, func() { p.healSession(session) })
	case expire:
		_ = p.ensemble.Server(0).ExpireSession(session)
	case strand:
		p.each(func(x *zktest.Server) { x.Partition(session) })
		p.later(s.last, func() { p.healSession(session) })
	case partition:
		server.Partition()
		p.later(s.last, func() { p.healServer(server) })
	case pause:
		server.Pause()
		p.later(s.last, server.Resume)
	case stop:
		p.mu.Lock()
		p.down[server.ID()] = true
		p.mu.Unlock()
		server.Stop()
		p.later(s.last, func() { p.restart(server) })
	case refuse:
		server.Refuse(true)
		p.later(s.last, func() { server.Refuse(false) })
	case reopen:
		p.close()
		p.open()
	}
}

func (p *performance) restart(s *zktest.Server) {
	p.mu.Lock()
	was := p.down[s.ID()]
	p.down[s.ID()] = false
	p.mu.Unlock()
	if was {
		s.Restart(zktest.KeepTree)
	}
}

func (p *performance) later(d time.Duration, f func()) {
	p.heals = append(p.heals, time.AfterFunc(d, f))
}

func (p *performance) healSession(session int64) {
	p.each(func(s *zktest.Server) {
		s.Heal(session)
		s.Delay(zktest.BothWays, p.latency, session)
	})
}

func (p *performance) healServer(s *zktest.Server) {
	s.Heal()
	s.Delay(zktest.BothWays, p.latency)
}

func (p *performance) heal() {
	for _, t := range p.heals {
		t.Stop()
	}
	for _, h := range p.hooks {
		h.Remove()
	}
	p.each(func(s *zktest.Server) {
		s.Refuse(false)
		s.Resume()
		p.restart(s)
		p.healServer(s)
	})
	p.note("all faults are healed")
}

// settle waits until nothing happens any more and compares.
func (p *performance) settle(when string) {
	time.Sleep(20*p.timeout + 10*time.Second)
	p.watch(0)
	if !p.cache.Fresh() {
		p.fault("%s: not fresh", when)
	}
	if err := sameAsServer(p.writer, p.cache, p.scope); err != nil {
		p.fault("%s: %v", when, err)
	}
	if err := p.reader.sameAsMemory(p.cache); err != nil {
		p.fault("%s: %v", when, err)
	}
	if p.reader.stale {
		p.fault("%s: the reader was not told that memory is fresh", when)
	}
	for z := range p.cache.All() {
		if z.Err != nil {
			p.fault("%s: %s has %v", when, z.Path, z.Err)
		}
	}
}

// poke changes every znode, and gives each a child more or less: all watches must
// be in place.
func (p *performance) poke() {
	var visit func(path string) error
	visit = func(path string) error {
		names, stat, err := p.writer.Children(path)
		if err != nil {
			return err
		}
		if _, err = p.writer.Set(path, []byte("poked"), -1); err != nil || stat.EphemeralOwner != 0 {
			return err
		}
		for _, name := range names {
			if err := visit(path + "/" + name); err != nil {
				return err
			}
		}
		_, err = p.writer.Create(path+"/poked", nil, 0, open)
		return err
	}
	if err := visit(top); err != nil && !errors.Is(err, zk.ErrNoNode) {
		p.fault("poke: %v", err)
	} else if err != nil {
		_, _ = p.writer.Create(top, nil, 0, open)
	}
}

// countChannels checks that the client holds no more than it must. Where it could
// not set its watches again it may wait for ever for what was deleted meanwhile.
func (p *performance) countChannels() {
	if slices.ContainsFunc(p.steps, func(s step) bool { return s.kind == throttle }) {
		return
	}
	if n := channels(p.conn); n > (2*p.cache.Len()+1)*shared.MaxChannels {
		p.fault("the client holds %d channels for %d znodes", n, p.cache.Len())
	}
}
