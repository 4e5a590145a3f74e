package storeurl

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/transport"
)

// address is a Config whose URL has been parsed.
type address struct {
	config Config
	url    *url.URL
	query  url.Values // query contains the parameters that no method has taken yet.
	risks  []changefeed.Risk
}

func parseAddress(cfg Config) (open driver, a address, err error) {
	cfg.Election = strings.Trim(cfg.Election, "/")
	u, err := url.Parse(cfg.URL)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // Unlike err, parse.Err does not contain the address, and so no password.
		}
		if strings.ContainsAny(cfg.URL, "@?") {
			// Replace the error: the part of the address that it contains can be a part of a password.
			err = errors.New("not a valid URL; special characters in a password must be escaped, / as %2F for example")
		}
		return nil, a, fmt.Errorf("%w: address of the store: %w", leaderelection.ErrInvalid, err)
	}
	open = drivers[u.Scheme]
	native := electionPackages[u.Scheme]
	switch {
	case native != "":
		return nil, a, fmt.Errorf("%w: address of the store: elections on %q do not use a store: use package %s", leaderelection.ErrInvalid, u.Scheme+":", native)
	case open == nil && tagsByScheme[u.Scheme] != "":
		return nil, a, fmt.Errorf("%w: address of the store: this program was built without the driver for %q: build it with -tags %s", leaderelection.ErrInvalid, u.Scheme+":", tagsByScheme[u.Scheme])
	case open == nil:
		return nil, a, fmt.Errorf("%w: address of the store: unknown scheme %q: expected one of %s", leaderelection.ErrInvalid, u.Scheme+":", strings.Join(Schemes(), ", "))
	case cfg.Election == "":
		return nil, a, fmt.Errorf("%w: the name of the election is empty", leaderelection.ErrInvalid)
	case u.Fragment != "":
		return nil, a, fmt.Errorf("%w: address of the store: # must be escaped as %%23", leaderelection.ErrInvalid)
	case u.Scheme != "memory" && u.Host == "":
		return nil, a, fmt.Errorf("%w: address of the store: no server: expected %s://host", leaderelection.ErrInvalid, u.Scheme)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, a, fmt.Errorf("%w: address of the store: the port is not a number from 1 to 65535", leaderelection.ErrInvalid)
		}
	}
	if cfg.Password != "" {
		u.User = url.UserPassword(u.User.Username(), cfg.Password)
	}
	a = address{config: cfg, url: u, query: u.Query()}
	if a.risks, err = a.takeRisks(); err != nil {
		return nil, a, fmt.Errorf("accepted risks: %w", err)
	}
	return open, a, nil
}

// takeParameter removes and returns the value of a parameter that is not for the driver. The
// default value is defaultName.
func (a *address) takeParameter(name string) string {
	value := a.query.Get(name)
	a.query.Del(name)
	if value == "" {
		return defaultName
	}
	return value
}

// takePoll removes and returns the interval of the parameter poll, or 0.
func (a *address) takePoll() (time.Duration, error) {
	value := a.query.Get("poll")
	a.query.Del("poll")
	if value == "" {
		return 0, nil
	}
	interval, err := time.ParseDuration(value)
	if err != nil || interval <= 0 {
		return 0, fmt.Errorf("the parameter poll is not a positive duration, such as 500ms: %q", value)
	}
	return interval, nil
}

// unsafeParameter is the name of the parameter that lists risks.
const unsafeParameter = "unsafe"

// takeRisks removes the parameter unsafe, and returns the risks that it or Config.Unsafe accepts.
func (a *address) takeRisks() ([]changefeed.Risk, error) {
	risks := slices.Clone(a.config.Unsafe)
	for _, value := range a.query[unsafeParameter] {
		for name := range strings.SplitSeq(value, ",") {
			r, err := changefeed.ParseRisk(name)
			if err != nil {
				return nil, err
			}
			risks = append(risks, r)
		}
	}
	a.query.Del(unsafeParameter)
	if len(risks) > 0 && a.url.Scheme == "memory" {
		return nil, fmt.Errorf("%w: stores in memory have no risks to accept", leaderelection.ErrInvalid)
	}
	for _, r := range risks {
		if _, err := changefeed.ParseRisk(string(r)); err != nil {
			return nil, err
		}
	}
	return risks, nil
}

// driverURL returns the address without the parameters that were taken.
func (a *address) driverURL() string {
	u := *a.url
	u.RawQuery = a.query.Encode()
	return u.String()
}

// rejectParameters returns an error if the address has parameters that no method has taken. It is for drivers that have
// no parameters of their own.
func (a *address) rejectParameters() error {
	for name := range a.query {
		return fmt.Errorf("unknown parameter %q", name)
	}
	return nil
}

// serverURLs returns the servers of the address as URLs with the given scheme.
func (a *address) serverURLs(scheme string) []string {
	var all []string
	for host := range strings.SplitSeq(a.url.Host, ",") {
		all = append(all, scheme+"://"+host)
	}
	return all
}

// tlsConfig returns the TLS configuration for a connection to a server whose certificate must be valid for host, or nil
// if Config.TLS is nil.
func (a *address) tlsConfig(host string) *tls.Config {
	if a.config.TLS == nil {
		return nil
	}
	return transport.ForServer(a.config.TLS, host)
}

// credentials returns the credentials in the address.
func (a *address) credentials() (user, password string) {
	password, _ = a.url.User.Password()
	return a.url.User.Username(), password
}

// text returns the address without passwords, for messages.
func (a *address) text() string { return Redacted(a.config.URL) }

// hosts returns the hosts of the address without their ports.
func (a *address) hosts() []string {
	var all []string
	for host := range strings.SplitSeq(a.url.Host, ",") {
		all = append(all, transport.Host(host))
	}
	return all
}

// checkSecurity returns an error if parameters of the address contradict each other or Config.TLS.
func (a *address) checkSecurity(parameters ...transport.Address) error {
	_, err := transport.UsesTLS(a.config.TLS != nil, parameters...)
	return err
}

// newLogin describes how the driver logs in at the servers of the address. sends reports whether it sends a credential,
// and secure whether all its connections use TLS.
func (a *address) newLogin(backend, credential string, sends, secure bool) transport.Login {
	if !sends {
		credential = ""
	}
	return transport.Login{
		Backend: backend, Credential: credential, Hosts: a.hosts(), TLS: secure || a.config.TLS != nil,
		Explicit: a.config.AllowPlainCredentials,
		Setting:  "use TLS, or set AllowPlainCredentials (elector: for example --tls, or --allow-plain-credentials)",
	}
}
