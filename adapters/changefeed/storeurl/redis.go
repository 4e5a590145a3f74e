//go:build !no_redis

package storeurl

import (
	"context"
	"fmt"
	"log/slog"

	redisclient "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
)

func init() {
	drivers["redis"], drivers["rediss"] = openRedis, openRedis
	driverLogs = append(driverLogs, func(log *slog.Logger) { redisclient.SetLogger(redisLog{log}) })
}

// redisLog passes the messages of the driver to a logger.
type redisLog struct{ log *slog.Logger }

func (r redisLog) Printf(ctx context.Context, format string, args ...any) {
	r.log.DebugContext(ctx, fmt.Sprintf(format, args...))
}

func openRedis(a address) (connector, error) {
	cfg, err := redisclient.ParseURL(a.driverURL())
	if err != nil {
		return nil, err
	}
	login := a.newLogin("Redis", "password", cfg.Password != "", cfg.TLSConfig != nil)
	if err := login.Check(); err != nil {
		return nil, err
	}
	if login.OnlyLocal() { // By maintenance notifications, a server can move connections to another server.
		cfg.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	if secure := a.tlsConfig(a.url.Hostname()); secure != nil {
		cfg.TLSConfig = secure
	}
	// Without this option, a request whose context is done keeps its connection until the client's
	// timeouts.
	cfg.ContextTimeoutEnabled = true
	// One attempt to connect is enough, because requests are repeated. With more attempts, the context
	// of a request would end before the driver returns the reason.
	cfg.DialerRetries = 1
	return func(context.Context) (*Opener, error) {
		client := redisclient.NewClient(cfg)
		return newOpener(func() (changefeed.Store, error) {
			return redis.NewStore(client, defaultName+":"+a.config.Election, redis.WithRisk(a.risks...))
		}, client.Close), nil
	}, nil
}
