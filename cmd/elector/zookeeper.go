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
	"github.com/go-leaderelection/leaderelection/internal/zk/znode"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

type zookeeperSettings struct {
	servers string
	session time.Duration
	auth    string
	tls     bool
}

func (z *zookeeperSettings) register(flags *pflag.FlagSet) {
	flags.StringVar(&z.servers, "zookeeper-servers", "", "addresses of the servers, host:port,...")
	flags.StringVar(&z.auth, "zookeeper-auth", "", "digest credentials user:password; preferably set by ELECTOR_ZOOKEEPER_AUTH. Only clients with these credentials may change the znodes that elector creates; all clients may read them")
}

// zookeeper is one connection, for the life of the process.
type zookeeper struct {
	*settings
	conn *zk.Conn
	of   *zookeeper // whose connection it is; nil for its own (zookeeper_top.go)

	mu   sync.Mutex
	auth <-chan error // of the credentials, once they are sent
}

func checkZooKeeper(s *settings) error {
	if _, _, err := s.zookeeperServers(); err != nil {
		return err
	}
	return s.checkElection(znode.CheckPath)
}

// zookeeperServers returns where and how to connect.
func (s *settings) zookeeperServers() ([]string, *tls.Config, error) {
	z := s.zookeeper
	servers, err := zkdial.ParseServers(z.servers)
	if err != nil {
		return nil, nil, usage("--zookeeper-servers: %w", err)
	}
	if z.auth != "" && !strings.Contains(z.auth, ":") {
		return nil, nil, usage("--zookeeper-auth: not of the form user:password")
	}
	if err := s.checkSession(100 * time.Millisecond); err != nil {
		return nil, nil, err
	}
	config, err := s.tlsConfig(z.tls)
	return servers, config, err
}

func openZooKeeper(s *settings) (backend, error) {
	servers, config, err := s.zookeeperServers()
	if err != nil {
		return backend{}, err
	}
	options := []zkdial.Option{zkdial.WithLogger(s.limitedLog())}
	if config != nil {
		options = append(options, zkdial.WithTLS(config))
	}
	conn, _, err := zkdial.Connect(servers, s.zookeeper.session, options...)
	if err != nil {
		return backend{}, err
	}
	return (&zookeeper{settings: s, conn: conn}).functions(), nil
}

func (z *zookeeper) functions() backend {
	return backend{
		close: z.close, candidate: z.candidate, session: z.session, negotiate: z.ready,
		connected: z.connected, healthy: z.healthy,
		list: z.list, watch: z.watch, missing: z.missing, at: z.at, find: z.find,
		askToResign: z.askToResign, end: z.end, remove: z.remove,
	}
}

// adviseZooKeeper adds to an error of permissions which setting has the credentials.
func (s *settings) adviseZooKeeper(err error) error {
	if !errors.Is(err, leaderelection.ErrPermission) {
		return err
	}
	return withCredentials(err, s.zookeeper.auth != "", "ELECTOR_ZOOKEEPER_AUTH (--zookeeper-auth)")
}

// session is what the servers have granted.
func (z *zookeeper) session() time.Duration { return zkdial.Granted(z.conn) }

// ready waits for a session with its credentials, until ctx is done.
func (z *zookeeper) ready(ctx context.Context) error {
	if z.of != nil {
		return z.of.ready(ctx)
	}
	if zkdial.Granted(z.conn) == 0 { // otherwise there has been a session
		if _, err := zkdial.Wait(ctx, z.conn); err != nil {
			return err
		}
	}
	return z.authenticate(ctx)
}

// authenticate sends the credentials once; the client library repeats them. Its request
// blocks while there is no connection.
func (z *zookeeper) authenticate(ctx context.Context) error {
	if z.zookeeper.auth == "" {
		return nil
	}
	z.mu.Lock()
	if z.auth == nil {
		auth := make(chan error, 1)
		z.auth = auth
		go func() { auth <- z.conn.AddAuth("digest", []byte(z.zookeeper.auth)) }()
	}
	auth := z.auth
	z.mu.Unlock()
	select {
	case err := <-auth:
		z.mu.Lock()
		defer z.mu.Unlock()
		z.auth = nil
		if err == nil {
			done := make(chan error)
			close(done) // for ever after
			z.auth = done
		}
		if err != nil {
			err = fmt.Errorf("authenticate with --zookeeper-auth (ELECTOR_ZOOKEEPER_AUTH): %w", err)
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (z *zookeeper) options() []leaderelection.Option {
	o := []leaderelection.Option{
		leaderelection.WithClientName(z.instanceID),
		leaderelection.WithLogger(z.electionLog()),
	}
	if z.zookeeper.auth != "" {
		o = append(o, leaderelection.WithACL(append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...)))
	}
	return o
}

// candidate waits for ZooKeeper without limit: an elector may be started before it.
func (z *zookeeper) candidate(ctx context.Context) (leaderelection.Candidate, error) {
	log := z.limitedLog()
	for {
		err := z.ready(ctx)
		if err == nil {
			var e *leaderelection.Election
			e, err = leaderelection.NewElection(z.conn, z.election, slices.Concat(z.options(), []leaderelection.Option{
				leaderelection.WithCreateNode(), leaderelection.WithRejoin(), leaderelection.WithValue(z.value),
			})...)
			if err == nil {
				return e, nil
			}
		}
		if ctx.Err() != nil || !errors.Is(err, leaderelection.ErrUnreachable) {
			return nil, err
		}
		log.Warn("zookeeper does not answer", "err", err)
	}
}

// close ends the session. The client library can hang in it when a request is under way.
func (z *zookeeper) close() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		z.conn.Close()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		z.log.Warn("session not closed: it will expire")
	}
}
