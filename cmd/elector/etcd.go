//go:build !no_etcd

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	grpccredentials "google.golang.org/grpc/credentials"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/transport"
)

func init() {
	backendKinds["etcd"] = backendKind{
		functions:      (*etcdBackend)(nil).backend(),
		flags:          func(s *settings, flags *pflag.FlagSet) { s.etcd.register(flags) },
		servers:        func(s *settings) string { return strings.Join(s.etcd.endpoints, ",") },
		electionKeys:   etcdElectionKeys,
		check:          checkEtcd,
		open:           openEtcd,
		sessionTimeout: etcdTTL,
		supportsValues: true,
		advise:         adviseEtcd,
	}
}

// etcdBackend is the backend etcd. It uses one client for the life of the process.
type etcdBackend struct {
	settings   *settings
	config     clientv3.Config
	lazyClient lazy[clientv3.Client]
}

func checkEtcd(s *settings) error {
	if _, err := s.etcdConfig(); err != nil {
		return err
	}
	return s.checkElection(etcd.CheckKey)
}

func etcdElectionKeys(s *settings) []string {
	var servers []string
	for _, endpoint := range s.etcd.endpoints {
		// parseEndpoint cannot fail, because checkEtcd has accepted the endpoint.
		server, _, _ := parseEndpoint(strings.TrimSpace(endpoint))
		servers = append(servers, server)
	}
	return s.electionKeysAt(servers)
}

func adviseEtcd(s *settings, err error) error {
	if !errors.Is(err, leaderelection.ErrPermission) {
		return err
	}
	return s.adviseCredentials(err, s.etcd.user != "", "ELECTOR_ETCD_USER and ELECTOR_ETCD_PASSWORD (--etcd-user, --etcd-password)")
}

func openEtcd(s *settings) (backend, error) {
	config, err := s.etcdConfig()
	if err != nil {
		return backend{}, err
	}
	return (&etcdBackend{settings: s, config: config}).backend(), nil
}

func (e *etcdBackend) backend() backend {
	return backend{
		close: e.close, newCandidate: e.newCandidate, sessionTimeout: e.sessionTimeout, connected: e.checkConnected,
		list: e.list, watch: e.watch, requestResignation: e.requestResignation, anyElection: true,
		endElection: e.endElection, deleteElection: e.deleteElection,
	}
}

// parseEndpoint returns the server of an endpoint, and the address, which determines whether TLS is used. The error
// is a usage error unless the endpoint is host:port, or a URL with a scheme that the client library supports.
func parseEndpoint(endpoint string) (server string, address transport.Address, err error) {
	if strings.Contains(endpoint, "@") {
		return "", address, usage("--etcd-endpoints: an endpoint contains @, and is not shown because of that: set for example --etcd-user and --etcd-password")
	}
	scheme, server, found := strings.Cut(endpoint, "://")
	address.Text = endpoint
	switch {
	case !found:
		scheme, server = "", endpoint
	case scheme == "http" || scheme == "unix":
		address.Security = transport.Plain
	case scheme == "https" || scheme == "unixs":
		address.Security = transport.TLS
	default:
		return "", address, usage("--etcd-endpoints: %q: scheme %q is not http, https, unix or unixs", endpoint, scheme)
	}
	switch {
	case scheme == "unix" || scheme == "unixs":
		server = "/" + strings.TrimPrefix(server, "/")
	case !cmdline.IsHostPort(server):
		return "", address, usage("--etcd-endpoints: %q is not of the form host:port", endpoint)
	}
	return server, address, nil
}

// etcdConfig checks the settings and returns the configuration of the client.
func (s *settings) etcdConfig() (c clientv3.Config, err error) {
	e := s.etcd
	var endpoints, servers []string
	var addresses []transport.Address
	for _, endpoint := range e.endpoints {
		if endpoint = strings.TrimSpace(endpoint); endpoint != "" {
			server, address, err := parseEndpoint(endpoint)
			if err != nil {
				return c, err
			}
			endpoints, servers, addresses = append(endpoints, endpoint), append(servers, server), append(addresses, address)
		}
	}
	switch {
	case len(endpoints) == 0:
		return c, usage("--etcd-endpoints is required: host:port,...")
	case (e.user == "") != (e.password == ""):
		return c, usage("--etcd-user and --etcd-password belong together: set both, for example --etcd-user elector and ELECTOR_ETCD_PASSWORD")
	}
	if err := s.checkSessionTimeout(time.Second); err != nil {
		return c, err
	}
	secure, err := transport.UsesTLS(s.tls.isSet(), addresses...)
	if err != nil {
		return c, usage("--etcd-endpoints: %w; for example --etcd-endpoints https://etcd1:2379,https://etcd2:2379", err)
	}
	config, err := s.tls.clientConfig(secure, false)
	if err != nil {
		return c, err
	}
	if e.password != "" {
		if err := s.tls.checkLogin("etcd", "password", servers, config); err != nil {
			return c, err
		}
	}
	// Do not use a proxy: a proxy from the environment would receive the password, even for a server on this machine.
	options := []grpc.DialOption{grpc.WithNoProxy()}
	if config != nil {
		options = append(options, grpc.WithTransportCredentials(serverCredentials{config}))
	}
	return clientv3.Config{
		DialOptions: options, Endpoints: endpoints, TLS: config, Username: e.user, Password: e.password, Logger: zap.NewNop(),
		// With these values, the client detects an unresponsive server, closes the connection and tries another
		// server. gRPC does not send keepalives more often than every ten seconds.
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
		DialTimeout: 5 * time.Second,
	}, nil
}

// serverCredentials are the credentials of connections that use TLS with a configuration of package
// cmdline.
type serverCredentials struct{ config *tls.Config }

// forHost returns the TLS credentials for connections to a host. The certificate of the server must name this host.
func (c serverCredentials) forHost(host string) grpccredentials.TransportCredentials {
	return grpccredentials.NewTLS(transport.ForServer(c.config, host))
}

// ClientHandshake implements [grpccredentials.TransportCredentials]. authority is the server's endpoint.
func (c serverCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, grpccredentials.AuthInfo, error) {
	return c.forHost(transport.Host(authority)).ClientHandshake(ctx, authority, conn)
}

func (c serverCredentials) ServerHandshake(net.Conn) (net.Conn, grpccredentials.AuthInfo, error) {
	return nil, nil, errors.New("server handshake with credentials that only clients can use")
}

func (c serverCredentials) Info() grpccredentials.ProtocolInfo          { return c.forHost("").Info() }
func (c serverCredentials) Clone() grpccredentials.TransportCredentials { return c }
func (c serverCredentials) OverrideServerName(string) error             { return errors.ErrUnsupported }

// etcdTTL returns the session timeout of the settings, rounded up to whole seconds as etcd requires.
func etcdTTL(s *settings) time.Duration {
	return (s.sessionTimeout + time.Second - 1).Truncate(time.Second)
}

func (e *etcdBackend) sessionTimeout() time.Duration { return etcdTTL(e.settings) }

// client returns the client. If a user name is set, the creation of the client waits for the server.
func (e *etcdBackend) client() (*clientv3.Client, error) {
	return e.lazyClient.get(func() (*clientv3.Client, error) {
		client, err := clientv3.New(e.config)
		switch {
		case errors.Is(err, rpctypes.ErrAuthFailed):
			return nil, fmt.Errorf("%w: %w", leaderelection.ErrPermission, err)
		case err != nil:
			return nil, fmt.Errorf("%w: %w", leaderelection.ErrUnreachable, err)
		}
		return client, nil
	})
}

// checkConnected returns nil if gRPC reports that at least one server is connected.
func (e *etcdBackend) checkConnected() error {
	client := e.lazyClient.created()
	if client == nil {
		return errors.New("no connection to etcd yet")
	}
	if state := client.ActiveConnection().GetState(); state != connectivity.Ready {
		return fmt.Errorf("no connection to etcd: %v", state)
	}
	return nil
}

// options returns the options that all elections of this backend have, followed by the given ones.
func (e *etcdBackend) options(more ...etcd.Option) []etcd.Option {
	return append([]etcd.Option{
		etcd.WithName(e.settings.instanceID),
		etcd.WithSessionTimeout(e.sessionTimeout()),
		etcd.WithLogger(e.settings.electionLog()),
	}, more...)
}

// newCandidate returns a candidate as soon as etcd is available. It waits for etcd until ctx is done.
func (e *etcdBackend) newCandidate(ctx context.Context) (leaderelection.Candidate, error) {
	client, err := e.client()
	if err != nil {
		return nil, err
	}
	return etcd.NewElection(client, e.settings.election, e.options(
		etcd.WithContext(ctx), etcd.WithCreateNode(), etcd.WithRejoin(), etcd.WithValue(e.settings.value))...)
}

func (e *etcdBackend) list(ctx context.Context, election string) ([]candidateInfo, error) {
	client, err := e.client()
	if err != nil {
		return nil, err
	}
	infos, err := etcd.Candidates(ctx, client, election, e.options()...)
	if err != nil {
		return nil, err
	}
	candidates := []candidateInfo{}
	for _, info := range infos {
		candidates = append(candidates, newCandidateInfo(info))
	}
	return candidates, nil
}

func (e *etcdBackend) watch(ctx context.Context, election string) (<-chan observation, error) {
	client, err := e.client()
	if err != nil {
		return nil, err
	}
	observations, err := etcd.Observe(ctx, client, election, e.options()...)
	if err != nil {
		return nil, err
	}
	return streamLeaders(ctx, convertObservations(observations, newCandidateInfo)), nil
}

func (e *etcdBackend) requestResignation(ctx context.Context, election string, candidate candidateInfo) error {
	client, err := e.client()
	if err != nil {
		return err
	}
	return etcd.RequestResign(ctx, client, election, candidate.ID, e.options()...)
}

func (e *etcdBackend) endElection(ctx context.Context) error {
	client, err := e.client()
	if err != nil {
		return err
	}
	c, err := etcd.NewElection(client, e.settings.election, e.options(etcd.WithContext(ctx))...)
	if err != nil {
		return err
	}
	return c.EndElection()
}

func (e *etcdBackend) deleteElection(ctx context.Context) error {
	client, err := e.client()
	if err != nil {
		return err
	}
	return etcd.DeleteElection(client, e.settings.election, e.options(etcd.WithContext(ctx))...)
}

func (e *etcdBackend) close() {
	e.lazyClient.close(func(client *clientv3.Client) { _ = client.Close() })
}
