package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/resign"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

func init() {
	backendKinds["zookeeper"] = backendKind{
		functions:      (*zooKeeperBackend)(nil).backend(),
		flags:          func(s *settings, flags *pflag.FlagSet) { s.zookeeper.register(flags) },
		servers:        func(s *settings) string { return s.zookeeper.servers },
		electionKeys:   zooKeeperElectionKeys,
		check:          checkZooKeeper,
		open:           openZooKeeper,
		sessionTimeout: (*settings).requestedTimeout,
		supportsValues: true,
		advise:         adviseZooKeeper,
	}
}

type zooKeeperSettings struct {
	servers   string
	auth      string
	strictACL bool
}

func (z *zooKeeperSettings) register(flags *pflag.FlagSet) {
	flags.StringVar(&z.servers, "zookeeper-servers", "", "addresses of the servers, host:port,... (default port 2181)")
	flags.StringVar(&z.auth, "zookeeper-auth", "", "digest credentials user:password; preferably set by ELECTOR_ZOOKEEPER_AUTH. Only clients with these credentials may change the znodes that elector creates; all clients may read them")
	flags.BoolVar(&z.strictACL, "zookeeper-strict-acl", false, "end with an error, instead of a warning, if the election node exists and its ACL lets clients without credentials change the election. It needs --zookeeper-auth")
}

// zooKeeperBackend is the backend zookeeper. It uses one connection for the life of the process.
type zooKeeperBackend struct {
	settings *settings
	conn     *zk.Conn

	mu   sync.Mutex
	auth *authentication // the authentication that is in progress or has succeeded; nil before the first one, and after one that has failed
}

// authentication is one transmission of the credentials, for whose result several callers can wait.
type authentication struct {
	done chan struct{} // closed when the servers have answered
	err  error         // the result, which is set before done is closed
}

func checkZooKeeper(s *settings) error {
	if _, _, err := s.zooKeeperServers(); err != nil {
		return err
	}
	return s.checkElection(zkdial.CheckPath)
}

func zooKeeperElectionKeys(s *settings) []string {
	// ParseServers cannot fail, because checkZooKeeper has accepted the servers.
	servers, _ := zkdial.ParseServers(s.zookeeper.servers)
	return s.electionKeysAt(servers)
}

// zooKeeperServers checks the settings, and returns the servers and the TLS configuration, which is nil without TLS.
func (s *settings) zooKeeperServers() ([]string, *tls.Config, error) {
	z := s.zookeeper
	servers, err := zkdial.ParseServers(z.servers)
	if err != nil {
		return nil, nil, usage("--zookeeper-servers: %w", err)
	}
	if z.auth != "" && !strings.Contains(z.auth, ":") {
		return nil, nil, usage("--zookeeper-auth: not of the form user:password")
	}
	if z.strictACL && z.auth == "" {
		return nil, nil, usage("--zookeeper-strict-acl requires credentials: set ELECTOR_ZOOKEEPER_AUTH (--zookeeper-auth)")
	}
	if err := s.checkSessionTimeout(100 * time.Millisecond); err != nil {
		return nil, nil, err
	}
	config, err := s.tls.clientConfig(false, false)
	if err == nil && z.auth != "" {
		err = s.tls.checkLogin("ZooKeeper", "password of --zookeeper-auth", servers, config)
	}
	return servers, config, err
}

func openZooKeeper(s *settings) (backend, error) {
	servers, config, err := s.zooKeeperServers()
	if err != nil {
		return backend{}, err
	}
	options := []zkdial.Option{zkdial.WithLogger(s.limitedLog())}
	if config != nil {
		options = append(options, zkdial.WithTLS(config))
	}
	conn, _, err := zkdial.Connect(servers, s.sessionTimeout, options...)
	if err != nil {
		return backend{}, err
	}
	return (&zooKeeperBackend{settings: s, conn: conn}).backend(), nil
}

func (z *zooKeeperBackend) backend() backend {
	return backend{
		close: z.close, newCandidate: z.newCandidate, sessionTimeout: z.sessionTimeout, awaitSession: z.awaitSession,
		connected: z.checkConnected, healthy: z.healthy,
		list: z.list, watch: z.watch, requestResignation: z.requestResignation, anyElection: true, find: z.find,
		examine: z.examineServers, endElection: z.endElection, deleteElection: z.deleteElection,
	}
}

// adviseZooKeeper adds the name of the setting for credentials to an error about permissions.
func adviseZooKeeper(s *settings, err error) error {
	rejected := errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrAuthFailed)
	switch {
	case !errors.Is(err, leaderelection.ErrPermission), strings.Contains(err.Error(), "QUOTAEXCEEDED"):
		return err
	case s.zookeeper.strictACL && !rejected: // this program, and not the server, has rejected the ACL of the election
		return err
	}
	return s.adviseCredentials(err, s.zookeeper.auth != "", "ELECTOR_ZOOKEEPER_AUTH (--zookeeper-auth)")
}

// sessionTimeout returns the timeout that the servers have granted.
func (z *zooKeeperBackend) sessionTimeout() time.Duration { return zkdial.Granted(z.conn) }

// awaitSession waits until the connection has a session to which the servers have granted the permissions of the
// credentials.
func (z *zooKeeperBackend) awaitSession(ctx context.Context) error {
	if zkdial.Granted(z.conn) == 0 { // skip this if the servers have granted a session before
		if _, err := zkdial.Wait(ctx, z.conn); err != nil {
			return err
		}
	}
	return z.authenticate(ctx)
}

// authenticate sends the credentials and waits for the answer, unless the servers have accepted the credentials
// before: the client library repeats them after each reconnect. If the connection breaks, the credentials are sent on
// the next connection.
func (z *zooKeeperBackend) authenticate(ctx context.Context) error {
	if z.settings.zookeeper.auth == "" {
		return nil
	}
	a := z.startAuthentication()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// startAuthentication returns the authentication that is in progress or has succeeded, or else starts a new one. A
// separate goroutine sends the credentials, because AddAuth blocks without a connection.
func (z *zooKeeperBackend) startAuthentication() *authentication {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.auth != nil {
		return z.auth
	}
	a := &authentication{done: make(chan struct{})}
	z.auth = a
	go func() {
		defer close(a.done)
		_, err := zkdial.Retry(context.Background(), z.conn, func() (struct{}, error) {
			return struct{}{}, z.conn.AddAuth("digest", []byte(z.settings.zookeeper.auth))
		})
		if err != nil {
			a.err = fmt.Errorf("authenticate with --zookeeper-auth (ELECTOR_ZOOKEEPER_AUTH): %w", err)
			z.mu.Lock()
			defer z.mu.Unlock()
			z.auth = nil
		}
	}()
	return a
}

// options returns the options that all elections of this backend have, followed by the given ones.
func (z *zooKeeperBackend) options(more ...leaderelection.Option) []leaderelection.Option {
	options := []leaderelection.Option{
		leaderelection.WithName(z.settings.instanceID),
		leaderelection.WithLogger(z.settings.electionLog()),
	}
	if z.settings.zookeeper.auth != "" {
		options = append(options, leaderelection.WithACL(append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...)))
	}
	if z.settings.zookeeper.strictACL {
		options = append(options, leaderelection.WithStrictACL())
	}
	return slices.Concat(options, more)
}

// newCandidate returns a candidate as soon as ZooKeeper is available. It waits for ZooKeeper until ctx is done.
func (z *zooKeeperBackend) newCandidate(ctx context.Context) (leaderelection.Candidate, error) {
	transient := func(err error) bool { return errors.Is(err, leaderelection.ErrUnreachable) }
	return z.settings.retryCandidate(ctx, "zookeeper does not answer", transient, func() (leaderelection.Candidate, error) {
		if err := z.awaitSession(ctx); err != nil {
			return nil, err
		}
		return leaderelection.NewElection(z.conn, z.settings.election, z.options(
			leaderelection.WithCreateNode(), leaderelection.WithRejoin(), leaderelection.WithValue(z.settings.value))...)
	})
}

// checkConnected returns nil if there is a session and the client library reports that the connection is up. The
// client library notices an unresponsive connection within two thirds of the session timeout.
func (z *zooKeeperBackend) checkConnected() error {
	state := z.conn.State()
	if state == zk.StateHasSession {
		return nil
	}
	err := fmt.Errorf("no session on zookeeper: %v", state)
	if failure := zkdial.Failure(z.conn); failure != nil {
		err = fmt.Errorf("%w: %w", err, failure)
	}
	return err
}

var errDataLost = errors.New("the servers have lost their data, and with it the session of this client, which has no new session yet")

// healthy returns an error from the time at which the servers have lost their data until the next session. A restart
// of this process may shorten this time, and is harmless, because a candidate without a session cannot lead.
func (z *zooKeeperBackend) healthy() error {
	if errors.Is(zkdial.Failure(z.conn), zkdial.ErrDataLost) {
		return errDataLost
	}
	return nil
}

func (z *zooKeeperBackend) list(ctx context.Context, election string) ([]candidateInfo, error) {
	if err := z.awaitSession(ctx); err != nil {
		return nil, err
	}
	infos, err := leaderelection.Candidates(ctx, z.conn, election, z.options()...)
	if err != nil {
		return nil, err
	}
	candidates := []candidateInfo{}
	for _, info := range infos {
		c, err := z.readCandidate(ctx, info)
		if err != nil {
			return nil, err
		}
		if c != nil {
			candidates = append(candidates, *c)
		}
	}
	return candidates, nil
}

// readCandidate reads the session of a candidate, and when the candidate has joined. It returns nil if the candidate
// has left.
func (z *zooKeeperBackend) readCandidate(ctx context.Context, info leaderelection.CandidateInfo) (*candidateInfo, error) {
	return zkdial.Retry(ctx, z.conn, func() (*candidateInfo, error) {
		exists, stat, err := z.conn.Exists(info.ID)
		if err != nil || !exists {
			return nil, err
		}
		c := newCandidateInfo(info)
		c.Joined = time.UnixMilli(stat.Ctime).UTC()
		c.Session = fmt.Sprintf("%#x", uint64(stat.EphemeralOwner))
		return &c, nil
	})
}

func (z *zooKeeperBackend) watch(ctx context.Context, election string) (<-chan observation, error) {
	if err := z.awaitSession(ctx); err != nil {
		return nil, err
	}
	observations, err := leaderelection.Observe(ctx, z.conn, election, z.options()...)
	if err != nil {
		return nil, err
	}
	return streamLeaders(ctx, convertObservations(observations, func(leader leaderelection.CandidateInfo) candidateInfo {
		if c, _ := z.readCandidate(ctx, leader); c != nil {
			return *c
		}
		return newCandidateInfo(leader) // return the leader without its details, because it has left or the read has failed
	})), nil
}

func (z *zooKeeperBackend) requestResignation(ctx context.Context, election string, candidate candidateInfo) error {
	if err := z.awaitSession(ctx); err != nil {
		return err
	}
	return resign.Request(ctx, z.conn, election, candidate.ID)
}

func (z *zooKeeperBackend) endElection(ctx context.Context) error {
	if err := z.awaitSession(ctx); err != nil {
		return err
	}
	election, err := leaderelection.NewElection(z.conn, z.settings.election, z.options(leaderelection.WithContext(ctx))...)
	if err != nil {
		return err
	}
	return election.EndElection()
}

func (z *zooKeeperBackend) deleteElection(ctx context.Context) error {
	if err := z.awaitSession(ctx); err != nil {
		return err
	}
	return leaderelection.DeleteElection(z.conn, z.settings.election, z.options(leaderelection.WithContext(ctx))...)
}

// close ends the session. It does not wait for more than two seconds, because Close of the client
// library can block while a request is in flight.
func (z *zooKeeperBackend) close() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		z.conn.Close()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		z.settings.log.Warn("session not closed: it will expire")
	}
}
