package discovery

import (
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
)

// Option is an option of a [Discovery]. Every [recipes.Option] is such an option.
type Option interface{ ApplyDiscovery(*recipe.Setup) }

// ProviderOption is an option of a [Provider]. The defaults are those of Curator.
type ProviderOption interface{ applyProvider(*providerSettings) }

type providerOption func(*providerSettings)

func (f providerOption) applyProvider(c *providerSettings) { f(c) }

// providerSettings contains what the ProviderOptions of a provider have set.
type providerSettings struct {
	strategy    Strategy
	downReports int
	downTimeout time.Duration
	err         error
}

// WithStrategy sets how the provider chooses an instance. The default is [RoundRobin].
func WithStrategy(s Strategy) ProviderOption {
	return providerOption(func(c *providerSettings) {
		if c.strategy = s; s == nil {
			c.err = fmt.Errorf("%w: WithStrategy(nil)", connection.ErrInvalid)
		}
	})
}

// WithDownAfter sets the number of reports ([Provider.Report]) after which an instance is considered
// down and skipped, and the time after the first of them at which the reports are discarded. Both
// must be positive. The default is 2 reports and 30 s.
func WithDownAfter(reports int, timeout time.Duration) ProviderOption {
	return providerOption(func(c *providerSettings) {
		if c.downReports, c.downTimeout = reports, timeout; reports < 1 || timeout <= 0 {
			c.err = fmt.Errorf("%w: WithDownAfter(%d, %v): must be positive", connection.ErrInvalid, reports, timeout)
		}
	})
}

// complete sets the fields that no option has set, and returns the error of an invalid option.
func (c *providerSettings) complete() error {
	if c.strategy == nil {
		c.strategy = RoundRobin()
	}
	if c.downReports == 0 {
		c.downReports, c.downTimeout = 2, 30*time.Second
	}
	return c.err
}
