package storeurl

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// address is a Config whose URL was understood.
type address struct {
	*Config
	*url.URL
	query url.Values // what is the driver's
	risks []changefeed.Risk
}

func parse(cfg Config) (open opener, a address, err error) {
	cfg.Election = strings.Trim(cfg.Election, "/")
	u, err := url.Parse(cfg.URL)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // without the address, which can have a password
		}
		return nil, a, fmt.Errorf("%w: address of the store: %w", leaderelection.ErrInvalidOption, err)
	}
	open = openers[u.Scheme]
	switch {
	case open == nil:
		return nil, a, fmt.Errorf("%w: address of the store: unknown scheme %q: expected one of %s", leaderelection.ErrInvalidOption, u.Scheme+":", strings.Join(Schemes(), ", "))
	case cfg.Election == "":
		return nil, a, fmt.Errorf("%w: the name of the election is empty", leaderelection.ErrInvalidOption)
	case u.Scheme != "memory" && u.Host == "":
		return nil, a, fmt.Errorf("%w: address of the store: no server: expected %s://host", leaderelection.ErrInvalidOption, u.Scheme)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, a, fmt.Errorf("%w: address of the store: port %s is not a number from 1 to 65535", leaderelection.ErrInvalidOption, port)
		}
	}
	if cfg.Password != "" {
		u.User = url.UserPassword(u.User.Username(), cfg.Password)
	}
	a = address{Config: &cfg, URL: u, query: u.Query()}
	if a.risks, err = a.takeRisks(); err != nil {
		return nil, a, fmt.Errorf("accepted risks: %w", err)
	}
	return open, a, nil
}

// take returns a parameter that is not for the driver.
func (a *address) take(name string) string {
	value := a.query.Get(name)
	a.query.Del(name)
	if value == "" {
		return defaultPlace
	}
	return value
}

// unsafe is the parameter that names risks.
const unsafe = "unsafe"

// withoutRisks are the schemes of stores that refuse no deployment for a risk.
var withoutRisks = []string{"memory", "zookeeper", "etcd", "etcds"}

// takeRisks returns the accepted risks.
func (a *address) takeRisks() ([]changefeed.Risk, error) {
	risks := slices.Clone(a.Unsafe)
	for _, value := range a.query[unsafe] {
		for name := range strings.SplitSeq(value, ",") {
			r, err := changefeed.ParseRisk(name)
			if err != nil {
				return nil, err
			}
			risks = append(risks, r)
		}
	}
	a.query.Del(unsafe)
	if len(risks) > 0 && slices.Contains(withoutRisks, a.Scheme) {
		return nil, fmt.Errorf("%w: stores on %s have no risks to accept", leaderelection.ErrInvalidOption, a.Scheme)
	}
	for _, r := range risks {
		if _, err := changefeed.ParseRisk(string(r)); err != nil {
			return nil, err
		}
	}
	return risks, nil
}

// rest is the address without what was taken.
func (a *address) rest() string {
	u := *a.URL
	u.RawQuery = a.query.Encode()
	return u.String()
}

// only refuses parameters that nobody would look at.
func (a *address) only() error {
	for name := range a.query {
		return fmt.Errorf("%w: unknown parameter %q", leaderelection.ErrInvalidOption, name)
	}
	return nil
}

// credentials are those in the address.
func (a *address) credentials() (user, password string) {
	password, _ = a.User.Password()
	return a.User.Username(), password
}
