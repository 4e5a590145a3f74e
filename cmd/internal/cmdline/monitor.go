package cmdline

import (
	"context"
	"crypto/x509"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// checkInterval is the interval at which [Certificates.Monitor] checks the files.
	checkInterval = time.Minute
	// repeatInterval is the interval at which [Certificates.Monitor] repeats a warning while its cause persists.
	repeatInterval = 24 * time.Hour
	// maxNotice is the longest time before the expiry of a certificate in which [Certificates.Monitor] logs a
	// warning.
	maxNotice = 30 * 24 * time.Hour
)

// Monitor starts a goroutine that checks the files of certificates and secrets, and logs each warning at most once a
// day: that the certificate expires soon or has expired, that replaced files cannot be read, and that all users can
// read a private file. stop ends the goroutine and waits for it.
func (f Certificates) Monitor(log *slog.Logger, secrets ...SecretFile) (stop func()) {
	if f == (Certificates{}) && !slices.ContainsFunc(secrets, SecretFile.isSet) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var checking sync.WaitGroup
	checking.Go(func() {
		m := f.newMonitor(log, secrets...)
		tick := time.NewTicker(checkInterval)
		defer tick.Stop()
		for {
			m.check(time.Now())
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		checking.Wait()
	}
}

// monitor is the state of [Certificates.Monitor].
type monitor struct {
	certificate *certificate // nil without --cert-file
	authorities *authorities // nil without --ca-file
	secrets     []*Secrets
	log         *slog.Logger
	failures    map[string]int       // the number of successive checks that failed, by the text of the log message
	logged      map[string]time.Time // the time of the last warning, by the text of the log message
}

func (f Certificates) newMonitor(log *slog.Logger, secrets ...SecretFile) *monitor {
	m := &monitor{log: log, failures: map[string]int{}, logged: map[string]time.Time{}}
	if f.CA != "" {
		m.authorities = f.authorities()
	}
	if f.Cert != "" {
		m.certificate = f.certificate()
	}
	for _, file := range secrets {
		if file.isSet() {
			m.secrets = append(m.secrets, file.secrets())
		}
	}
	return m
}

// check reads the files if they have changed, and logs warnings. now is the current time.
func (m *monitor) check(now time.Time) {
	if m.authorities != nil {
		_, err := m.authorities.load()
		m.reportFailure(now, "the certificates of the authorities cannot be read: connections use those that were read before", err)
	}
	for _, s := range m.secrets {
		_, err := s.load()
		m.reportFailure(now, s.flags+": the secrets cannot be read: connections use those that were read before", err)
		if s.warning != "" {
			m.report(now, slog.LevelWarn, s.flags+": the secrets are not private", "err", s.warning)
		}
	}
	if m.certificate == nil {
		return
	}
	pair, err := m.certificate.load()
	m.reportFailure(now, "the certificate cannot be read: connections use the one that was read before", err)
	if pair == nil {
		return
	}
	if m.certificate.warning != "" {
		m.report(now, slog.LevelWarn, "the key of the certificate is not private", "err", "--key-file: "+m.certificate.warning)
	}
	leaf := pair.Leaf
	switch remaining := leaf.NotAfter.Sub(now); {
	case remaining <= 0:
		m.report(now, slog.LevelError, "the certificate has expired: new connections fail until --cert-file and --key-file are replaced; a restart is not necessary", "cert-file", m.certificate.files[0], "expiry", leaf.NotAfter)
	case remaining <= noticePeriod(leaf):
		m.report(now, slog.LevelWarn, "the certificate expires soon: replace --cert-file and --key-file; a restart is not necessary", "cert-file", m.certificate.files[0], "expiry", leaf.NotAfter)
	}
}

// reportFailure logs that files cannot be read if the previous check has failed as well. After a single failure,
// another process may just be replacing the files.
func (m *monitor) reportFailure(now time.Time, text string, err error) {
	if err == nil {
		m.failures[text] = 0
	} else if m.failures[text]++; m.failures[text] > 1 {
		m.report(now, slog.LevelError, text, "err", err)
	}
}

// noticePeriod returns the time before the expiry of a certificate in which warnings are logged. Programs that
// renew certificates do so when a third of the lifetime is left, which must not cause warnings.
func noticePeriod(c *x509.Certificate) time.Duration {
	return min(maxNotice, c.NotAfter.Sub(c.NotBefore)/4)
}

// report logs a message, unless report has logged the same text in the last 24 hours.
func (m *monitor) report(now time.Time, level slog.Level, text string, args ...any) {
	if last, found := m.logged[text]; found && now.Sub(last) < repeatInterval {
		return
	}
	m.logged[text] = now
	m.log.Log(context.Background(), level, text, args...)
}
