package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection"
)

type zookeeperSettings struct {
	servers string
	session time.Duration
	auth    string
	tls     bool
}

func (z *zookeeperSettings) register(flags *pflag.FlagSet) {
	flags.StringVar(&z.servers, "zookeeper-servers", "", "servers, host:port,...")
	flags.DurationVar(&z.session, "session-timeout", 4*time.Second, "session timeout to ask for; servers may grant another one, which counts; on raftlog how long a peer may be silent, the same at each")
	flags.StringVar(&z.auth, "zookeeper-auth", "", "digest credentials user:password; better given as ELECTOR_ZOOKEEPER_AUTH. What is created then belongs to them and everybody may read it")
	flags.BoolVar(&z.tls, "tls", false, "connect by TLS; with the system's authorities unless --ca-file is given")
}

// zookeeper is one connection, for the life of the process.
type zookeeper struct {
	*settings
	conn   *zk.Conn
	grants *grants
	of     *zookeeper // whose connection it is; nil for its own (zookeeper_top.go)

	mu   sync.Mutex
	auth <-chan error // of the credentials, once they are sent
}

func openZooKeeper(s *settings) (backend, error) {
	z := s.zookeeper
	list, err := parseServers(z.servers)
	if err != nil {
		return nil, err
	}
	if z.auth != "" && !strings.Contains(z.auth, ":") {
		return nil, usage("--zookeeper-auth: not of the form user:password")
	}
	if z.session < 100*time.Millisecond {
		return nil, usage("--session-timeout %v: less than 100ms", z.session)
	}
	config, err := s.tlsConfig(z.tls)
	if err != nil {
		return nil, err
	}
	g := &grants{tls: config, known: make(chan struct{})}
	conn, _, err := zk.Connect(list.list(), z.session, zk.WithHostProvider(list), zk.WithDialer(g.dial),
		zk.WithLogInfo(false), zk.WithLogger(clientLog{s.log}))
	if err != nil {
		return nil, err
	}
	return &zookeeper{settings: s, conn: conn, grants: g}, nil
}

// clientLog is the client library's log.
type clientLog struct{ log *slog.Logger }

func (l clientLog) Printf(format string, args ...any) {
	l.log.Warn("zookeeper: " + fmt.Sprintf(format, args...))
}

func (z *zookeeper) asks() time.Duration { return z.zookeeper.session }

// session is what the servers have granted.
func (z *zookeeper) session() time.Duration { return z.grants.timeout() }

// ready waits for a session with its credentials, until ctx is done.
func (z *zookeeper) ready(ctx context.Context) error {
	if z.of != nil {
		return z.of.ready(ctx)
	}
	select {
	case <-z.grants.known:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", leaderelection.ErrUnreachable, context.Cause(ctx))
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
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (z *zookeeper) options() []leaderelection.Option {
	o := []leaderelection.Option{
		leaderelection.WithClientName(z.instanceID),
		leaderelection.WithSessionTimeout(z.grants.timeout()),
		leaderelection.WithLogger(z.log.WithGroup("election")),
	}
	if z.zookeeper.auth != "" {
		o = append(o, leaderelection.WithACL(append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...)))
	}
	return o
}

// candidate waits for ZooKeeper without limit: an elector may be started before it.
func (z *zookeeper) candidate(ctx context.Context) (leaderelection.Candidate, error) {
	for {
		err := z.ready(ctx)
		if err == nil {
			var e *leaderelection.Election
			e, err = leaderelection.NewElection(z.conn, z.election, slices.Concat(z.options(), z.candidateOptions, []leaderelection.Option{
				leaderelection.WithCreateNode(), leaderelection.WithRejoin(),
			})...)
			if err == nil {
				return e, nil
			}
		}
		if ctx.Err() != nil || !errors.Is(err, leaderelection.ErrUnreachable) {
			return nil, err
		}
		z.log.Warn("zookeeper does not answer", "err", err)
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
		z.log.Warn("session is not closed: it ends in time")
	}
}
