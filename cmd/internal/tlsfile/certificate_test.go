package tlsfile

import (
	"crypto/tls"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/certtest"
)

// TestConfig_ReplacedFiles fails if a handshake uses another certificate than that in the files or, while
// these are not a certificate and its key, than the one before.
func TestConfig_ReplacedFiles(t *testing.T) {
	authority, dir := certtest.New(t), t.TempDir()
	expiry := time.Now().Add(time.Hour).Truncate(time.Second)
	write := func(to time.Time) Files {
		ca, cert, key := authority.WriteFiles(dir, "peer", time.Now().Add(-time.Hour), to)
		return Files{CA: ca, Cert: cert, Key: key}
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
	require.NoError(t, os.WriteFile(files.Key, key, 0o600)) // that of the second certificate
	requireExpiry(second)
	require.NoError(t, os.Remove(files.Key))
	requireExpiry(second)
	require.NoError(t, os.WriteFile(files.Key, newKey, 0o600))
	requireExpiry(third)
}

// handshake connects two sides, and returns when the certificates that they have sent expire.
func handshake(t *testing.T, server, client *tls.Config) (ofServer, ofClient time.Time) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	client = client.Clone()
	client.ServerName = "peer"
	accepting, dialing := tls.Server(a, server), tls.Client(b, client)
	done := make(chan error, 1)
	go func() { done <- accepting.Handshake() }()
	require.NoError(t, dialing.Handshake())
	// The session tickets of the server are read, which completes the handshake of net.Pipe.
	go dialing.Read(make([]byte, 1))
	require.NoError(t, <-done)
	return dialing.ConnectionState().PeerCertificates[0].NotAfter, accepting.ConnectionState().PeerCertificates[0].NotAfter
}
