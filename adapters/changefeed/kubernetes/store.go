package kubernetes

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	coordination "k8s.io/api/coordination/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// Store stores the record of one election in a Lease. It implements [changefeed.Store]. Its methods
// may be called from any goroutine.
type Store struct {
	changefeed.NoChanges
	client          *rest.RESTClient
	namespace, name string
	withoutCreate   bool
	quiet           time.Duration
	runner          store.Runner

	connections *connrotation.Dialer // connections contains the open connections. It is nil if the config has a Transport.
	answered    atomic.Int64         // answered is when the API server last answered, in nanoseconds.
}

var _ changefeed.Store = (*Store)(nil)

// Option is an option of [NewStore].
type Option interface{ apply(*Store) error }

type optionFunc func(*Store) error

func (f optionFunc) apply(s *Store) error { return f(s) }

// WithoutCreate makes the store not create a Lease: Start fails if it does not exist. Candidates
// then do not need the verb create, which RBAC cannot restrict to one name.
func WithoutCreate() Option {
	return optionFunc(func(s *Store) error { s.withoutCreate = true; return nil })
}

// WithQuiet sets the quiet time: if a feed receives nothing for this time, it reads the record to
// check that the API server is available. The default is three seconds, the minimum 10 ms, the
// maximum 48 hours. If it is longer than a heartbeat interval, such reads are not needed while
// there is a leader.
func WithQuiet(d time.Duration) Option {
	return optionFunc(func(s *Store) error { return store.SetQuietTime(&s.quiet, d) })
}

// scheme contains the types that the API server sends.
var scheme = runtime.NewScheme()

func init() {
	if err := coordination.AddToScheme(scheme); err != nil {
		panic(err)
	}
	meta.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
}

// NewStore creates a store of the record in the Lease with a name in a namespace. It sends no request. The
// config is a configuration of client-go, such as rest.InClusterConfig returns for the service account of
// a pod. NewStore does not change config, and ignores its QPS, Burst, RateLimiter and Timeout. CertFile
// and KeyFile are read once: if that certificate is replaced, a new store is needed. The election creates
// the record.
//
// The error wraps [leaderelection.ErrInvalid].
func NewStore(config *rest.Config, namespace, name string, opts ...Option) (*Store, error) {
	if config == nil {
		return nil, fmt.Errorf("%w: the config is nil", leaderelection.ErrInvalid)
	}
	if reasons := validation.IsDNS1123Label(namespace); len(reasons) > 0 {
		return nil, fmt.Errorf("%w: namespace %q: %s", leaderelection.ErrInvalid, namespace, strings.Join(reasons, "; "))
	}
	if reasons := validation.IsDNS1123Subdomain(name); len(reasons) > 0 {
		return nil, fmt.Errorf("%w: name of a Lease %q: %s", leaderelection.ErrInvalid, name, strings.Join(reasons, "; "))
	}
	s := &Store{namespace: namespace, name: name, quiet: 3 * time.Second}
	if err := store.ApplyOptions(s, opts, Option.apply); err != nil {
		return nil, err
	}
	s.answered.Store(time.Now().UnixNano())
	if err := s.openClient(rest.CopyConfig(config)); err != nil {
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrInvalid, err)
	}
	s.runner = store.Runner{
		Feeds: store.NewFeeds(s.Read, s.watch, s.quiet), Prefix: "kubernetes: ", Suffix: " at " + withoutUser(config.Host), MeaningOf: meaningOf,
	}
	return s, nil
}

// userInfo matches the user and the password in a host, which can be an address with or without a scheme.
var userInfo = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9+.-]*://)?[^/]*@`)

// withoutUser returns host without the user and the password, for messages.
func withoutUser(host string) string { return userInfo.ReplaceAllString(host, "$1") }

// openClient creates the client of the store from config, which it changes.
func (s *Store) openClient(config *rest.Config) error {
	// Read the client certificate once: client-go would start goroutines that reload its files, and Close could
	// not end them. client-go still reloads the file of the certificate authorities.
	authorities := config.CAData
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	config.CAData = authorities
	version := coordination.SchemeGroupVersion
	config.GroupVersion, config.APIPath = &version, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.UserAgent = cmp.Or(config.UserAgent, rest.DefaultKubernetesUserAgent())
	config.QPS, config.RateLimiter = -1, nil // A rate limit could delay heartbeats, which would end the leadership.
	config.Timeout = 0                       // No timeout, which would end watches.
	if config.Transport == nil {
		dial := config.Dial
		if dial == nil {
			dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 10 * time.Second}).DialContext
		}
		s.connections = connrotation.NewDialer(connrotation.DialFunc(dial))
		config.Dial = s.connections.DialContext
		if config.Proxy == nil {
			config.Proxy = http.ProxyFromEnvironment // Otherwise client-go keeps the transport in a global cache forever.
		}
	}
	var err error
	s.client, err = rest.RESTClientFor(config)
	return err
}

// Close implements [changefeed.Store].
func (s *Store) Close() error {
	err := s.runner.Close()
	s.closeConnections()
	return err
}

// closeConnections closes the connections of the store, so that later requests open new ones.
func (s *Store) closeConnections() {
	if s.connections != nil {
		s.connections.CloseAll()
	}
}
