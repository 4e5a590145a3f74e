package kubernetes

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

var apiServerPath = flag.String("apiserver", "", "path of kube-apiserver, for the tests that need it")

// The tokens of the users of an API server.
const (
	adminToken  = "admin-token"
	reportToken = "report-token"
)

// apiServer is a kube-apiserver process and its etcd server.
type apiServer struct {
	t       testing.TB
	dir     string
	args    []string
	etcd    string
	port    *testenv.Port
	process *testenv.Process
	logs    *os.File
}

// startAPIServer starts an API server with additional arguments, and stops it when the test ends. The server
// authorizes users by RBAC.
func startAPIServer(t testing.TB, args ...string) *apiServer {
	t.Helper()
	if *apiServerPath == "" {
		t.Skip("not run: no kube-apiserver: make kubernetes builds it")
	}
	dir, err := testenv.MakeDir("apiserver")
	require.NoError(t, err)
	s := &apiServer{t: t, dir: dir, args: args, etcd: dbserver.StartEtcd(t, dbserver.EtcdConfig{}).URL(0)}
	t.Cleanup(func() {
		s.stop()
		_ = os.RemoveAll(dir)
	})
	s.port, err = testenv.ReservePort()
	require.NoError(t, err)
	t.Cleanup(s.port.Release)
	s.logs, err = os.Create(s.path("log"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.logs.Close() })
	users := adminToken + ",admin,1,system:masters\n" +
		reportToken + ",system:serviceaccount:default:report,2,\"system:serviceaccounts,system:authenticated\"\n"
	require.NoError(t, os.WriteFile(s.path("tokens.csv"), []byte(users), 0o600))
	s.writeKeys()
	s.start()
	return s
}

func (s *apiServer) path(name string) string { return filepath.Join(s.dir, name) }

// writeKeys writes the keys with which the server signs the tokens of service accounts.
func (s *apiServer) writeKeys() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(s.t, err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(s.t, err)
	for name, block := range map[string]*pem.Block{
		"sa.key": {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
		"sa.pub": {Type: "PUBLIC KEY", Bytes: public},
	} {
		require.NoError(s.t, os.WriteFile(s.path(name), pem.EncodeToMemory(block), 0o600))
	}
}

// start starts the process, and waits until the server is ready and has created the namespace default.
func (s *apiServer) start() {
	s.t.Helper()
	args := append([]string{
		"--etcd-servers=" + s.etcd, fmt.Sprint("--secure-port=", s.port.Number), "--bind-address=127.0.0.1", "--cert-dir=" + s.dir,
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + s.path("sa.pub"),
		"--service-account-signing-key-file=" + s.path("sa.key"), "--token-auth-file=" + s.path("tokens.csv"),
		"--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount",
	}, s.args...)
	cmd := exec.Command(*apiServerPath, args...)
	cmd.Stdout, cmd.Stderr = s.logs, s.logs
	var err error
	s.process, err = testenv.StartProcess(cmd)
	require.NoError(s.t, err)
	client := s.client(adminToken, schema.GroupVersion{Version: "v1"})
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := client.Get().AbsPath("/readyz").Do(ctx).Error()
		if err == nil {
			err = client.Get().AbsPath("/api/v1/namespaces/default").Do(ctx).Error()
		}
		cancel()
		switch {
		case err == nil:
			return
		case s.process.Ended() || time.Now().After(end):
			s.t.Fatalf("kube-apiserver is not ready: %v\n%s", err, testenv.LastLinesOf(s.path("log")))
		}
	}
}

// stop kills the process.
func (s *apiServer) stop() {
	if s.process == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = s.process.Kill(ctx)
}

// restart kills the process and starts it again.
func (s *apiServer) restart() {
	s.t.Helper()
	s.stop()
	s.start()
}

// addr returns the host:port of the server.
func (s *apiServer) addr() string { return fmt.Sprint("127.0.0.1:", s.port.Number) }

// config returns the configuration of a client with the rights of the administrator.
func (s *apiServer) config() *rest.Config { return clientConfig(s.addr(), adminToken) }

// clientConfig returns the configuration of a client that connects to addr, the address of the server or of a proxy.
func clientConfig(addr, token string) *rest.Config {
	return &rest.Config{
		Host: "https://" + addr, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		// Set the default proxy explicitly: client-go shares the transport of configs without a Proxy function.
		QPS: -1, Proxy: http.ProxyFromEnvironment,
	}
}

// client returns a REST client for one group and version of the API.
func (s *apiServer) client(token string, version schema.GroupVersion) *rest.RESTClient {
	s.t.Helper()
	c := clientConfig(s.addr(), token)
	c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &version, "/apis", scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(c)
	require.NoError(s.t, err)
	s.t.Cleanup(client.Client.CloseIdleConnections)
	return client
}

var lastName atomic.Int64

// newName returns the name of a Lease that no other test uses.
func newName() string { return fmt.Sprint("lease-", lastName.Add(1)) }

// deleteLease deletes a Lease, as an operator could by mistake.
func (s *apiServer) deleteLease(name string) {
	s.t.Helper()
	client := s.client(adminToken, schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"})
	require.NoError(s.t, client.Delete().Namespace("default").Resource("leases").Name(name).
		Body(&metav1.DeleteOptions{}).Do(context.Background()).Error())
}
