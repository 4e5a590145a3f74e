package cmdline

import (
	"cmp"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/transport"
)

// TestConfig_UsesReplacedCertificate checks that each TLS handshake uses the certificate that the files contain at
// that time, or, while the files do not contain a certificate and the matching key, the last certificate that they
// contained.
func TestConfig_UsesReplacedCertificate(t *testing.T) {
	authority, dir := testenv.NewAuthority(t), t.TempDir()
	expiry := time.Now().Add(time.Hour).Truncate(time.Second)
	write := func(to time.Time) Certificates {
		ca, cert, key := authority.WriteFiles(dir, "peer", time.Now().Add(-time.Hour), to)
		return Certificates{CA: ca, Cert: cert, Key: key}
	}
	files := write(expiry)
	server, err := files.PeerConfig(nil)
	require.NoError(t, err)
	client, err := files.PeerConfig(nil)
	require.NoError(t, err)
	requireExpiry := func(want time.Time) {
		t.Helper()
		fromServer, fromClient := handshake(t, server, client)
		require.WithinDuration(t, want, fromServer, 0, "of the server")
		require.WithinDuration(t, want, fromClient, 0, "of the client")
	}
	requireExpiry(expiry)

	second := expiry.Add(time.Hour)
	write(second)
	requireExpiry(second)

	key, err := os.ReadFile(files.Key)
	require.NoError(t, err)
	third := second.Add(time.Hour)
	write(third)
	newKey, err := os.ReadFile(files.Key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(files.Key, key, 0o600)) // the key of the second certificate
	requireExpiry(second)
	require.NoError(t, os.Remove(files.Key))
	requireExpiry(second)
	require.NoError(t, os.WriteFile(files.Key, newKey, 0o600))
	requireExpiry(third)
}

// TestConfig_TrustsReplacedAuthorities checks that clients and servers trust the authorities that their file contains
// at the time of a handshake, or, while the file cannot be read, the authorities that it contained last.
func TestConfig_TrustsReplacedAuthorities(t *testing.T) {
	authorities := map[string]*testenv.Authority{"a": testenv.NewAuthority(t), "b": testenv.NewAuthority(t)}
	ofServer, ofClient := filepath.Join(t.TempDir(), "ca.pem"), filepath.Join(t.TempDir(), "ca.pem")
	write := func(file, trusted string) {
		var all []byte
		for name := range strings.SplitSeq(trusted, "+") {
			ca, _, _ := authorities[name].Files("peer")
			pem, err := os.ReadFile(ca)
			require.NoError(t, err)
			all = append(all, pem...)
		}
		require.NoError(t, os.WriteFile(file+".new", all, 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	write(ofServer, "a")
	write(ofClient, "a")
	_, cert, key := authorities["a"].Files("peer")
	server, err := Certificates{CA: ofServer, Cert: cert, Key: key}.PeerConfig(nil)
	require.NoError(t, err)
	client, err := Certificates{CA: ofClient, Cert: cert, Key: key}.PeerConfig(nil)
	require.NoError(t, err)
	client = transport.ForServer(client, "peer")
	for _, c := range []struct {
		server, client string
		trusted        bool
	}{{"a", "a", true}, {"b", "a", false}, {"a", "b", false}, {"b+a", "a+b", true}, {"b", "b", false}, {"a", "a", true}} {
		write(ofServer, c.server)
		write(ofClient, c.client)
		for range 2 {
			_, _, err := tryHandshake(t, server, client)
			if c.trusted {
				require.NoError(t, err, c)
			} else {
				require.ErrorContains(t, err, "unknown authority", c)
				require.ErrorAs(t, err, new(*tls.CertificateVerificationError))
			}
			_ = os.Remove(ofServer)
			_ = os.Remove(ofClient)
		}
	}
}

// TestConfig_RejectsCertificateOfOtherServer checks that a client rejects the certificate of a server with another
// name, and does not connect if no server name is set.
func TestConfig_RejectsCertificateOfOtherServer(t *testing.T) {
	authority := testenv.NewAuthority(t)
	for _, host := range []string{"peer", "127.0.0.1"} {
		ca, cert, key := authority.Files(host)
		files := Certificates{CA: ca, Cert: cert, Key: key}
		server, err := files.PeerConfig(nil)
		require.NoError(t, err)
		client, err := files.Config()
		require.NoError(t, err)
		for _, name := range []string{"peer", "127.0.0.1", "127.0.0.2", "other"} {
			_, _, err = tryHandshake(t, server, transport.ForServer(client, name))
			if name == host {
				require.NoError(t, err, name)
			} else {
				require.ErrorAs(t, err, new(*tls.CertificateVerificationError), "%s instead of %s", name, host)
			}
		}
		_, _, err = tryHandshake(t, server, client)
		require.ErrorContains(t, err, "no name")
	}
}

// handshake connects a server and a client, and returns when the certificates expire that each side has sent.
func handshake(t *testing.T, server, client *tls.Config) (ofServer, ofClient time.Time) {
	t.Helper()
	ofServer, ofClient, err := tryHandshake(t, server, transport.ForServer(client, "peer"))
	require.NoError(t, err)
	return ofServer, ofClient
}

// tryHandshake connects a server and a client like handshake, and returns the error of the client or the server.
func tryHandshake(t *testing.T, server, client *tls.Config) (ofServer, ofClient time.Time, err error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	b, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer b.Close()
	a, err := listener.Accept()
	require.NoError(t, err)
	defer a.Close()
	accepting, dialing := tls.Server(a, server), tls.Client(b, client)
	done := make(chan error, 1)
	go func() { done <- accepting.Handshake() }()
	err = dialing.Handshake()
	if err != nil {
		b.Close()
	}
	if err = cmp.Or(err, <-done); err != nil {
		return time.Time{}, time.Time{}, err
	}
	return dialing.ConnectionState().PeerCertificates[0].NotAfter, accepting.ConnectionState().PeerCertificates[0].NotAfter, nil
}
