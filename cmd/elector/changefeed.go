//go:build !no_changefeed

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storeurl"
)

func init() {
	backendKinds["changefeed"] = backendKind{
		functions:      (*changefeedBackend)(nil).backend(),
		flags:          func(s *settings, flags *pflag.FlagSet) { s.changefeed.register(flags) },
		servers:        func(s *settings) string { return storeurl.Redacted(s.changefeed.store) },
		electionKeys:   func(s *settings) []string { return s.electionKeysAt([]string{s.changefeed.store}) }, // checkDifferentElections recognizes a store that has two addresses
		check:          checkChangefeed,
		open:           openChangefeed,
		sessionTimeout: (*settings).requestedTimeout,
		advise:         adviseChangefeed,
	}
}

// changefeedBackend is the backend changefeed. It uses one connection and one store, for the election of --election,
// for the life of the process.
type changefeedBackend struct {
	settings  *settings
	lazyStore lazy[openedStore]
}

// openedStore contains an opened store and its connection.
type openedStore struct {
	connection *storeurl.Opener
	store      changefeed.Store
}

func checkChangefeed(s *settings) error {
	switch {
	case s.changefeed.store == "":
		return usage("--store is required: postgres://user@host/database, redis://host, ...")
	case s.changefeed.store == "memory:":
		return usage("--store memory: exists within one process only, so no other process could be a candidate")
	}
	if err := s.checkSessionTimeout(100 * time.Millisecond); err != nil {
		return err
	}
	config, err := s.storeConfig()
	if err != nil {
		return err
	}
	if err := storeurl.Check(config); err != nil {
		return usage("--store, --%[1]s: %[2]w; for example --store postgres://elector@db1/jobs --%[1]s /jobs/report", s.electionFlag(), err)
	}
	return nil
}

func (s *settings) storeConfig() (c storeurl.Config, err error) {
	// Only the drivers of the stores in this list tell the TLS configuration to which server they connect.
	scheme, _, _ := strings.Cut(s.changefeed.store, ":")
	perServer := slices.Contains([]string{"mariadb", "mysql", "postgres", "postgresql", "redis", "rediss"}, scheme)
	tls, err := s.tls.clientConfig(false, !perServer)
	if err != nil {
		return c, err
	}
	risks, err := s.changefeed.acceptedRisks()
	return storeurl.Config{
		URL: s.changefeed.store, Election: s.election, Password: s.changefeed.password, Unsafe: risks, TLS: tls,
		AllowPlainCredentials: s.tls.allowPlain,
	}, err
}

// acceptedRisks returns the risks that the user accepts with --store-unsafe.
func (c *changefeedSettings) acceptedRisks() ([]changefeed.Risk, error) {
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

// adviseUnsafe adds the flag --store-unsafe with the risks of the deployment to an error about an unsafe store.
func (s *settings) adviseUnsafe(err error) error {
	var unsafe *changefeed.UnsafeError
	if !errors.As(err, &unsafe) {
		return err
	}
	names := make([]string, 0, len(unsafe.Risks()))
	for _, r := range unsafe.Risks() {
		names = append(names, string(r))
	}
	accepted := strings.Join(names, ",")
	if s.alsoFile != "" {
		return fmt.Errorf("%w; the line for that in the file of --also, %s, is %s: %s", err, s.alsoFile, flagStoreUnsafe, accepted)
	}
	return fmt.Errorf("%w; the flag for that is --%s %s", err, flagStoreUnsafe, accepted)
}

// credentialErrors are parts, in lower case, of the errors that servers of stores return for wrong credentials. The
// client libraries have no common type for these errors.
var credentialErrors = []string{
	"password authentication failed", "no pg_hba.conf entry", // PostgreSQL
	"access denied for user",        // MySQL and MariaDB
	"wrongpass", "noauth", "noperm", // Redis
	"authorization violation",        // NATS
	"authenticationfailed",           // MongoDB
	"wrong password", "unknown user", // RethinkDB
}

// withoutPassword contains the schemes of stores for which elector has no setting with credentials. The errors of
// these stores name what is missing.
var withoutPassword = []string{
	"kubernetes://", // Kubernetes
}

// tlsErrors are parts, in lower case, of the errors of a PostgreSQL client that requires TLS.
var tlsErrors = []string{"server refused tls connection", "failed to verify certificate"}

func adviseChangefeed(s *settings, err error) error {
	text := strings.ToLower(err.Error())
	contained := func(part string) bool { return strings.Contains(text, part) }
	if slices.ContainsFunc(tlsErrors, contained) && s.changefeed.impliesTLS() && !s.tls.isSet() {
		return fmt.Errorf("%w; because it would receive a password, --store implies sslmode=verify-full: enable TLS at the server, with a certificate that this machine trusts or --ca-file, or set sslmode in --store", err)
	}
	if slices.ContainsFunc(withoutPassword, func(prefix string) bool { return strings.HasPrefix(s.changefeed.store, prefix) }) ||
		!errors.Is(err, leaderelection.ErrPermission) && !slices.ContainsFunc(credentialErrors, contained) {
		return err
	}
	given := s.changefeed.password != "" || strings.Contains(s.changefeed.store, "@")
	return s.adviseCredentials(err, given, "ELECTOR_STORE (--store postgres://user@host/database) and ELECTOR_STORE_PASSWORD (--store-password)")
}

// impliesTLS reports whether package storeurl chooses the parameter sslmode, because the address contains no sslmode
// and the server receives a password.
func (c *changefeedSettings) impliesTLS() bool {
	u, err := url.Parse(c.store)
	return err == nil && strings.HasPrefix(u.Scheme, "postgres") && u.Query().Get("sslmode") == "" && os.Getenv("PGSSLMODE") == ""
}

func openChangefeed(s *settings) (backend, error) {
	storeurl.LogDrivers(s.log)
	return (&changefeedBackend{settings: s}).backend(), nil
}

func (c *changefeedBackend) backend() backend {
	return backend{
		close: c.close, newCandidate: c.newCandidate,
		epoch: c.recordEpoch, list: c.list, watch: c.watch, transfer: c.transfer, endElection: c.endElection, deleteElection: c.deleteElection,
	}
}

// store returns the store. The first successful call opens it.
func (c *changefeedBackend) store(ctx context.Context) (changefeed.Store, error) {
	opened, err := c.lazyStore.get(func() (*openedStore, error) {
		config, err := c.settings.storeConfig()
		if err != nil {
			return nil, err
		}
		connection, err := storeurl.Open(ctx, config)
		if err != nil {
			return nil, fmt.Errorf("--store: %w", err)
		}
		store, err := connection.NewStore()
		if err != nil {
			_ = connection.Close()
			return nil, fmt.Errorf("--store: %w", err)
		}
		return &openedStore{connection, store}, nil
	})
	if err != nil {
		return nil, err
	}
	return opened.store, nil
}

// startedStore returns the store after a call of its method Start, which commands need that do not join the election.
func (c *changefeedBackend) startedStore(ctx context.Context) (changefeed.Store, error) {
	defer c.settings.warnWhileWaiting()()
	store, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	return store, c.settings.adviseUnsafe(store.Start(ctx))
}

// options returns the options that all elections of this backend have, followed by the given ones. The session
// timeout is the lease.
func (c *changefeedBackend) options(ctx context.Context, more ...changefeed.Option) []changefeed.Option {
	lease := c.settings.sessionTimeout
	return append([]changefeed.Option{
		changefeed.WithContext(ctx), changefeed.WithID(c.settings.instanceID),
		// Keep the proportion of the default timeouts, in which a lease lasts 7/4 of the heartbeat interval.
		changefeed.WithHeartbeat(lease * 4 / 7),
		// The leadership ends lease/stopGuard before the lease. In this time, --lost-grace lets the program and the
		// commands stop.
		changefeed.WithStopGuard(lease / stopGuard),
		changefeed.WithLogger(c.settings.electionLog()),
	}, more...)
}

// newCandidate returns a candidate as soon as the store is available. It waits for the store until ctx is done.
func (c *changefeedBackend) newCandidate(ctx context.Context) (leaderelection.Candidate, error) {
	transient := func(err error) bool {
		return !errors.Is(err, changefeed.ErrUnsuitable) && !errors.Is(err, leaderelection.ErrInvalid) &&
			!errors.Is(err, leaderelection.ErrNoElection)
	}
	return c.settings.retryCandidate(ctx, "the store cannot be used yet", transient, func() (leaderelection.Candidate, error) {
		defer c.settings.warnWhileWaiting()()
		store, err := c.store(ctx)
		if err != nil {
			return nil, err
		}
		election, err := changefeed.NewElection(store, c.options(ctx)...)
		if err != nil {
			return nil, c.settings.adviseUnsafe(err)
		}
		return election, nil
	})
}

// recordEpoch returns the epoch of the election's record in the store, or "" if there is no record.
func (c *changefeedBackend) recordEpoch(ctx context.Context) (string, error) {
	store, err := c.store(ctx)
	if err != nil {
		return "", err
	}
	r, err := store.Read(ctx)
	if errors.Is(err, changefeed.ErrNoRecord) {
		err = nil
	}
	return r.Epoch, err
}

// list returns the leader in the election's record. The leader may have crashed within its lease, or earlier if no
// other candidate was waiting. The store does not contain waiting candidates.
func (c *changefeedBackend) list(ctx context.Context, _ string) ([]candidateInfo, error) {
	store, err := c.startedStore(ctx)
	if err != nil {
		return nil, err
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
	if leader := recordLeader(r); leader != nil {
		return []candidateInfo{*leader}, nil
	}
	return nil, nil
}

// recordLeader returns the leader in a record, or nil if the record contains no leader.
func recordLeader(r changefeed.Record) *candidateInfo {
	if r.Leader == "" || r.TTL == 0 || r.Ended {
		return nil
	}
	return &candidateInfo{Name: r.Leader, ID: r.Leader, Token: int64(r.Term)}
}

func (c *changefeedBackend) watch(ctx context.Context, _ string) (<-chan observation, error) {
	store, err := c.startedStore(ctx)
	if err != nil {
		return nil, err
	}
	feed, err := store.Subscribe(ctx)
	if err != nil {
		return nil, err
	}
	return streamLeaders(ctx, func(yield func(*candidateInfo, error) bool) {
		defer func() { _ = feed.Close() }()
		var seen changefeed.Record // the last record that the feed has delivered
		for {
			event, err := feed.Next(ctx)
			var leader *candidateInfo
			switch r := event.Record; {
			case err != nil, event.Missing:
			case r.Ended, seen.Epoch != "" && r.Generation() > seen.Generation():
				err = leaderelection.ErrElectionOver // the feed may skip the record that is marked as ended
			default:
				seen, leader = r, recordLeader(r)
			}
			if !yield(leader, err) {
				return
			}
		}
	}), nil
}

// transfer makes the named candidate the leader. It does not check that the candidate exists, because the store does
// not contain waiting candidates.
func (c *changefeedBackend) transfer(ctx context.Context, _, to string) error {
	store, err := c.startedStore(ctx)
	if err != nil {
		return err
	}
	return c.settings.adviseUnsafe(changefeed.Transfer(ctx, store, to, c.options(ctx)...))
}

// endElection marks the record of the election as ended, so that all candidates learn of the end, and then allows
// another election with the same name, as the other backends do. If endElection is interrupted between these steps,
// another call completes it.
func (c *changefeedBackend) endElection(ctx context.Context) error {
	store, err := c.store(ctx)
	if err != nil {
		return err
	}
	err = changefeed.DeleteElection(store, c.options(ctx, changefeed.WithoutCreate())...)
	if err == nil {
		err = changefeed.RestartElection(store, c.options(ctx)...)
	}
	if errors.Is(err, changefeed.ErrNotEnded) {
		err = nil // no error, because another process has restarted the election
	}
	return c.settings.adviseUnsafe(err)
}

func (c *changefeedBackend) deleteElection(ctx context.Context) error {
	if err := c.endElection(ctx); !errors.Is(err, leaderelection.ErrNoElection) {
		return err
	}
	return nil
}

func (c *changefeedBackend) close() {
	c.lazyStore.close(func(opened *openedStore) {
		_ = opened.store.Close()
		_ = opened.connection.Close()
	})
}
