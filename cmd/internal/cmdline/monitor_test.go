package cmdline

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// TestMonitor_WarnsOfExpiryOnceADay checks that the monitor logs at most once a day that a certificate expires soon,
// has expired or cannot be read, and logs nothing about a valid certificate.
func TestMonitor_WarnsOfExpiryOnceADay(t *testing.T) {
	const day = 24 * time.Hour
	for _, test := range []struct {
		name                   string
		lifetime, notice, step time.Duration // notice is the time before the expiry in which warnings are expected
	}{
		{"lifetime of a year", 365 * day, 30 * day, time.Hour},
		{"lifetime of 40 days", 40 * day, 10 * day, time.Hour},
		{"lifetime of an hour", time.Hour, 15 * time.Minute, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			authority, dir := testenv.NewAuthority(t), t.TempDir()
			now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
			write := func() Certificates {
				ca, cert, key := authority.WriteFiles(dir, "peer", now, now.Add(test.lifetime))
				return Certificates{CA: ca, Cert: cert, Key: key}
			}
			files := write()
			var log bytes.Buffer
			m := files.newMonitor(slog.New(slog.NewTextHandler(&log, nil)))
			// checkFor calls check at each step of the period d, and returns what check has logged.
			checkFor := func(d time.Duration) string {
				log.Reset()
				for end := now.Add(d); now.Before(end); now = now.Add(test.step) {
					m.check(now)
				}
				return log.String()
			}
			require.Empty(t, checkFor(test.lifetime-test.notice))
			soon := checkFor(test.notice)
			require.Equal(t, max(1, int(test.notice/day)), strings.Count(soon, "level=WARN msg=\"the certificate expires soon"), soon)
			require.NotContains(t, soon, "has expired")
			expired := checkFor(2 * day)
			require.Equal(t, 2, strings.Count(expired, "level=ERROR msg=\"the certificate has expired"), expired)

			write()
			require.Empty(t, checkFor(2*test.step))
			key, err := os.ReadFile(files.Key)
			require.NoError(t, err)
			require.NoError(t, os.Remove(files.Key))
			require.Empty(t, checkFor(test.step))
			require.Equal(t, 1, strings.Count(checkFor(3*test.step), "cannot be read"))
			require.NoError(t, os.WriteFile(files.Key, key, 0o600))
			require.Empty(t, checkFor(2*test.step))
			ca, err := os.ReadFile(files.CA)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(files.CA, nil, 0o600))
			require.Empty(t, checkFor(test.step))
			require.Equal(t, 1, strings.Count(checkFor(3*test.step), "the certificates of the authorities cannot be read"))
			require.NoError(t, os.WriteFile(files.CA, ca, 0o600))

			require.NoError(t, os.Chmod(files.Key, 0o644))
			require.Equal(t, 1, strings.Count(checkFor(3*test.step), "--key-file: "+files.Key+" has mode 0644"))
			require.NoError(t, os.Chmod(files.Key, 0o646))
			now = now.Add(day) // wait until the next day, because check has logged an error on this day
			require.Equal(t, 1, strings.Count(checkFor(3*test.step), "--key-file: "+files.Key+" has mode 0646"))
			_, err = files.PeerConfig(nil)
			require.ErrorContains(t, err, "--key-file: "+files.Key+" has mode 0646")
		})
	}
}
