//go:build !no_changefeed

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storeurl"
)

func init() {
	kinds["changefeed"] = kind{
		has: (*feeds)(nil).functions(), check: checkChangefeed, open: openChangefeed,
		session: func(s *settings) time.Duration { return s.zookeeper.session },
		servers: func(s *settings) string { return storeurl.Redacted(s.changefeed.store) },
		flags:   func(s *settings, flags *pflag.FlagSet) { s.changefeed.register(flags) },
		advise:  (*settings).adviseChangefeed,
	}
}

// risks are those that --store-unsafe accepts.
func (c *changefeedSettings) risks() ([]changefeed.Risk, error) {
	var risks []changefeed.Risk
	for _, name := range c.unsafe {
		r, err := changefeed.ParseRisk(name)
		if err != nil {
			return nil, usage("--%s: %w", flagStoreUnsafe, err)
		}
		risks = append(risks, r)
	}
	return risks, nil
}

// withFlag adds to the error about an unsafe deployment the flag that accepts it.
func withFlag(err error) error {
	var unsafe *changefeed.UnsafeError
	if !errors.As(err, &unsafe) {
		return err
	}
	names := make([]string, 0, len(unsafe.Risks()))
	for _, r := range unsafe.Risks() {
		names = append(names, string(r))
	}
	return fmt.Errorf("%w; the flag for that is --%s %s", err, flagStoreUnsafe, strings.Join(names, ","))
}

// feeds is the backend changefeed: one connection and one store, for the life of the
// process.
type feeds struct {
	*settings

	mu     sync.Mutex
	opened *storeurl.Opened // nil before it is needed
	store  changefeed.Store // likewise
}

func checkChangefeed(s *settings) error {
	switch {
	case s.changefeed.store == "":
		return usage("--store is required: postgres://user@host/database, redis://host, ...")
	case s.changefeed.store == "memory:":
		return usage("--store memory: exists within one process only, so no other process could be a candidate")
	}
	if err := s.checkSession(100 * time.Millisecond); err != nil {
		return err
	}
	config, err := s.storeConfig()
	if err != nil {
		return err
	}
	if err := storeurl.Check(config); err != nil {
		return usage("--store, --election: %w; for example --store postgres://elector@db1/jobs --election /jobs/report", err)
	}
	return nil
}

func (s *settings) storeConfig() (c storeurl.Config, err error) {
	tls, err := s.tlsConfig(s.zookeeper.tls)
	if err != nil {
		return c, err
	}
	risks, err := s.changefeed.risks()
	return storeurl.Config{
		URL: s.changefeed.store, Election: s.election, Password: s.changefeed.password, Unsafe: risks, TLS: tls,
	}, err
}

// refusedLogins are parts of the errors by which servers of stores refuse credentials, in lower
// case. Their clients have no common type for these errors.
var refusedLogins = []string{
	"password authentication failed", "no pg_hba.conf entry", // PostgreSQL
	"wrongpass", "noauth", "noperm", // Redis
	"authorization violation",        // NATS
	"authenticationfailed",           // MongoDB
	"wrong password", "unknown user", // RethinkDB
	"authentication failed, invalid user", // etcd
}

func (s *settings) adviseChangefeed(err error) error {
	refused := func(part string) bool { return strings.Contains(strings.ToLower(err.Error()), part) }
	if !errors.Is(err, leaderelection.ErrPermission) && !slices.ContainsFunc(refusedLogins, refused) {
		return err
	}
	given := s.changefeed.password != "" || strings.Contains(s.changefeed.store, "@")
	return withCredentials(err, given, "ELECTOR_STORE (--store postgres://user@host/database) and ELECTOR_STORE_PASSWORD (--store-password)")
}

func openChangefeed(s *settings) (backend, error) { return (&feeds{settings: s}).functions(), nil }

func (f *feeds) functions() backend {
	return backend{
		close: f.close, candidate: f.candidate, session: f.session,
		list: f.list, watch: f.watch, end: f.end, remove: f.remove,
	}
}

// session is the lease: what a leader has after its last heartbeat.
func (f *feeds) session() time.Duration { return f.zookeeper.session }

// heartbeat is such that the defaults of package changefeed give that lease.
func (f *feeds) heartbeat() time.Duration { return f.session() * 4 / 7 }

// ready is the store, which is made once.
func (f *feeds) ready(ctx context.Context) (changefeed.Store, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opened == nil {
		config, err := f.storeConfig()
		if err != nil {
			return nil, err
		}
		if f.opened, err = storeurl.Open(ctx, config); err != nil {
			return nil, fmt.Errorf("--store: %w", err)
		}
	}
	if f.store == nil {
		store, err := f.opened.New()
		if err != nil {
			return nil, fmt.Errorf("--store: %w", err)
		}
		f.store = store
	}
	return f.store, nil
}

func (f *feeds) options(ctx context.Context) []changefeed.Option {
	return []changefeed.Option{
		changefeed.WithContext(ctx), changefeed.WithID(f.instanceID), changefeed.WithHeartbeat(f.heartbeat()),
		// What is left of the lease is for the end of what runs: --lost-grace.
		changefeed.WithStopGuard(f.session() / spare),
		changefeed.WithLogger(f.electionLog()),
	}
}

// candidate waits for the store without limit: an elector may be started before it.
func (f *feeds) candidate(ctx context.Context) (leaderelection.Candidate, error) {
	passes := func(err error) bool {
		return !errors.Is(err, changefeed.ErrUnsuitable) && !errors.Is(err, leaderelection.ErrInvalidOption) &&
			!errors.Is(err, leaderelection.ErrInvalidPath) && !errors.Is(err, leaderelection.ErrNoElection)
	}
	return f.patient(ctx, "the store cannot be used yet", passes, func() (leaderelection.Candidate, error) {
		store, err := f.ready(ctx)
		if err != nil {
			return nil, err
		}
		election, err := changefeed.NewElection(store, f.options(ctx)...)
		if err != nil {
			return nil, withFlag(err)
		}
		return election, nil
	})
}

// list has the leader that the record names, which may have died within its lease, or at any
// time where nobody was there to follow. Those who wait leave no trace in the store.
func (f *feeds) list(ctx context.Context) ([]place, error) {
	store, err := f.ready(ctx)
	if err != nil {
		return nil, err
	}
	if err := store.Start(ctx); err != nil {
		return nil, withFlag(err)
	}
	r, err := store.Read(ctx)
	switch {
	case errors.Is(err, changefeed.ErrNoRecord):
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrNoElection, err)
	case err != nil:
		return nil, err
	case r.Ended:
		return nil, leaderelection.ErrElectionOver
	}
	if p := leaderIn(r); p != nil {
		return []place{*p}, nil
	}
	return nil, nil
}

func leaderIn(r changefeed.Record) *place {
	if r.Leader == "" || r.TTL == 0 || r.Ended {
		return nil
	}
	return &place{Name: r.Leader, ID: r.Leader, Token: int64(r.Term)}
}

// watch tells of the leaders that the record names.
func (f *feeds) watch(ctx context.Context) (<-chan observation, error) {
	store, err := f.ready(ctx)
	if err != nil {
		return nil, err
	}
	if err := store.Start(ctx); err != nil {
		return nil, withFlag(err)
	}
	feed, err := store.Subscribe(ctx)
	if err != nil {
		return nil, err
	}
	out := make(chan observation)
	go func() {
		defer close(out)
		defer func() { _ = feed.Close() }()
		told, last := false, int64(0)
		for {
			event, err := feed.Next(ctx)
			if ctx.Err() != nil {
				return
			}
			next := observation{err: err}
			switch {
			case err != nil:
			case event.Record.Ended:
				next.err = leaderelection.ErrElectionOver
			case !event.Missing:
				next.leader = leaderIn(event.Record)
			}
			token := int64(0)
			if next.leader != nil {
				token = next.leader.Token
			}
			if next.err == nil && told && token == last {
				continue // a heartbeat
			}
			told, last = true, token
			select {
			case out <- next:
			case <-ctx.Done():
				return
			}
			if next.err != nil {
				return
			}
		}
	}()
	return out, nil
}

// end ends the election, which must exist.
func (f *feeds) end(ctx context.Context) error {
	return f.finish(ctx, changefeed.WithoutCreate())
}

// remove ends the election. The mark of that stays in the store, so there is nothing that
// could be there and not be ended.
func (f *feeds) remove(ctx context.Context) error { return f.finish(ctx) }

func (f *feeds) finish(ctx context.Context, more ...changefeed.Option) error {
	store, err := f.ready(ctx)
	if err != nil {
		return err
	}
	return withFlag(changefeed.DeleteElection(store, append(f.options(ctx), more...)...))
}

func (f *feeds) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.store != nil {
		_ = f.store.Close()
	}
	if f.opened != nil {
		f.opened.Close()
	}
}
