//go:build !no_etcd

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/connectivity"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
)

func init() {
	kinds["etcd"] = kind{
		has: (*etcdBackend)(nil).functions(), check: checkEtcd, open: openEtcd, session: (*settings).etcdTTL,
		servers: func(s *settings) string { return strings.Join(s.etcd.endpoints, ",") },
		flags:   func(s *settings, flags *pflag.FlagSet) { s.etcd.register(flags) },
		advise:  (*settings).adviseEtcd,
		values:  true,
	}
}

// etcdBackend is one client, for the life of the process.
type etcdBackend struct {
	*settings
	config clientv3.Config
	of     *etcdBackend // whose client it is; nil for its own

	mu     sync.Mutex
	client atomic.Pointer[clientv3.Client] // nil before it is needed; made with mu held
}

func checkEtcd(s *settings) error {
	if _, err := s.etcdConfig(); err != nil {
		return err
	}
	return s.checkElection(etcd.CheckKey)
}

func (s *settings) adviseEtcd(err error) error {
	if !errors.Is(err, leaderelection.ErrPermission) {
		return err
	}
	return withCredentials(err, s.etcd.user != "", "ELECTOR_ETCD_USER and ELECTOR_ETCD_PASSWORD (--etcd-user, --etcd-password)")
}

func openEtcd(s *settings) (backend, error) {
	config, err := s.etcdConfig()
	if err != nil {
		return backend{}, err
	}
	return (&etcdBackend{settings: s, config: config}).functions(), nil
}

func (e *etcdBackend) functions() backend {
	return backend{
		close: e.close, candidate: e.candidate, session: e.session, connected: e.connected,
		list: e.list, watch: e.watch, missing: e.missing, at: e.at,
		askToResign: e.askToResign, end: e.end, remove: e.remove,
	}
}

// checkEndpoint reports, as wrong usage, that an endpoint is neither host:port nor a URL of a
// scheme that the client library knows.
func checkEndpoint(endpoint string) error {
	address := endpoint
	if scheme, rest, found := strings.Cut(endpoint, "://"); found {
		switch scheme {
		case "unix", "unixs":
			return nil
		case "http", "https":
			address = rest
		default:
			return usage("--etcd-endpoints: %q: scheme %q is not http, https, unix or unixs", endpoint, scheme)
		}
	}
	host, port, err := net.SplitHostPort(address)
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || n == 0 || host == "" || strings.ContainsAny(host, " /") {
		return usage("--etcd-endpoints: %q is not of the form host:port", endpoint)
	}
	return nil
}

func (s *settings) etcdConfig() (c clientv3.Config, err error) {
	e := s.etcd
	var endpoints []string
	secure := false
	for _, endpoint := range e.endpoints {
		if endpoint = strings.TrimSpace(endpoint); endpoint != "" {
			if err := checkEndpoint(endpoint); err != nil {
				return c, err
			}
			endpoints = append(endpoints, endpoint)
			secure = secure || strings.HasPrefix(endpoint, "https://")
		}
	}
	switch {
	case len(endpoints) == 0:
		return c, usage("--etcd-endpoints is required: host:port,...")
	case (e.user == "") != (e.password == ""):
		return c, usage("--etcd-user and --etcd-password belong together: set both, for example --etcd-user elector and ELECTOR_ETCD_PASSWORD")
	}
	if err := s.checkSession(time.Second); err != nil {
		return c, err
	}
	tls, err := s.tlsConfig(s.zookeeper.tls || secure)
	if err != nil {
		return c, err
	}
	return clientv3.Config{
		Endpoints: endpoints, TLS: tls, Username: e.user, Password: e.password, Logger: zap.NewNop(),
		// A connection that says nothing any more is given up, and another server tried.
		// gRPC does not ask more often.
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
		DialTimeout: 5 * time.Second,
	}, nil
}

// etcdTTL is the session timeout as etcd counts it, in whole seconds.
func (s *settings) etcdTTL() time.Duration {
	return (s.zookeeper.session + time.Second - 1).Truncate(time.Second)
}

func (e *etcdBackend) session() time.Duration { return e.etcdTTL() }

// ready is the client, which is made once. With a user's name that takes an answer of the
// server's.
func (e *etcdBackend) ready() (*clientv3.Client, error) {
	if e.of != nil {
		return e.of.ready()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if client := e.client.Load(); client != nil {
		return client, nil
	}
	client, err := clientv3.New(e.config)
	switch {
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrPermission, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrUnreachable, err)
	}
	e.client.Store(client)
	return client, nil
}

// connected is nil with a connection to one server at least, as far as gRPC knows.
func (e *etcdBackend) connected() error {
	client := e.client.Load()
	if client == nil {
		return errors.New("no connection to etcd yet")
	}
	if state := client.ActiveConnection().GetState(); state != connectivity.Ready {
		return fmt.Errorf("no connection to etcd: %v", state)
	}
	return nil
}

func (e *etcdBackend) options(more ...etcd.Option) []etcd.Option {
	return append([]etcd.Option{
		etcd.WithClientName(e.instanceID),
		etcd.WithSessionTimeout(e.session()),
		etcd.WithLogger(e.electionLog()),
	}, more...)
}

// candidate waits for etcd without limit: an elector may be started before it.
func (e *etcdBackend) candidate(ctx context.Context) (leaderelection.Candidate, error) {
	passes := func(err error) bool { return errors.Is(err, leaderelection.ErrUnreachable) }
	return e.patient(ctx, "etcd does not answer", passes, func() (leaderelection.Candidate, error) {
		client, err := e.ready()
		if err != nil {
			return nil, err
		}
		// Its own limit is a session timeout; ctx ends only the wait for it.
		return etcd.NewElection(client, e.election, e.options(
			etcd.WithContext(ctx), etcd.WithCreateNode(), etcd.WithRejoin(), etcd.WithValue(e.value))...)
	})
}

func (e *etcdBackend) list(ctx context.Context) ([]place, error) {
	client, err := e.ready()
	if err != nil {
		return nil, err
	}
	infos, err := etcd.Candidates(client, e.election, e.options(etcd.WithContext(ctx))...)
	if err != nil {
		return nil, err
	}
	places := []place{}
	for _, info := range infos {
		places = append(places, placeOf(info))
	}
	return places, nil
}

func (e *etcdBackend) watch(ctx context.Context) (<-chan observation, error) {
	client, err := e.ready()
	if err != nil {
		return nil, err
	}
	in, err := etcd.Observe(ctx, client, e.election, e.options()...)
	if err != nil {
		return nil, err
	}
	return observe(ctx, in, placeOf), nil
}

// askToResign requests a candidate to resign.
func (e *etcdBackend) askToResign(ctx context.Context, candidate place) error {
	client, err := e.ready()
	if err != nil {
		return err
	}
	return etcd.AskToResign(client, e.election, candidate.ID, e.options(etcd.WithContext(ctx))...)
}

// at returns the functions for another election with the same client.
func (e *etcdBackend) at(election string) backend {
	s := *e.settings
	s.election = election
	return (&etcdBackend{settings: &s, of: e}).functions()
}

// missing reports whether an error means that there is no such election.
func (e *etcdBackend) missing(err error) bool { return errors.Is(err, leaderelection.ErrNoElection) }

// end ends the election, which must exist, without taking part.
func (e *etcdBackend) end(ctx context.Context) error {
	client, err := e.ready()
	if err != nil {
		return err
	}
	c, err := etcd.NewElection(client, e.election, e.options(etcd.WithContext(ctx))...)
	if err != nil {
		return err
	}
	return c.EndElection()
}

// remove deletes the election, if it exists.
func (e *etcdBackend) remove(ctx context.Context) error {
	client, err := e.ready()
	if err != nil {
		return err
	}
	return etcd.DeleteElection(client, e.election, e.options(etcd.WithContext(ctx))...)
}

func (e *etcdBackend) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if client := e.client.Load(); client != nil {
		client.Close()
	}
}
