//go:build !no_mongodb

package storeurl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
	"github.com/go-leaderelection/leaderelection/transport"
)

func init() { drivers["mongodb"], drivers["mongodb+srv"] = openMongoDB, openMongoDB }

// closeLimit limits Close of a driver that sends requests to its server.
const closeLimit = 2 * time.Second

func openMongoDB(a address) (connector, error) {
	collection := a.takeParameter("collection")
	database := strings.Trim(a.url.Path, "/")
	if database == "" {
		return nil, errors.New("no database: expected mongodb://host/database")
	}
	// Parse the address when a store is opened: to parse a mongodb+srv address, the driver sends requests to name
	// servers.
	cfg := sync.OnceValues(func() (*options.ClientOptions, error) {
		cfg := options.Client().ApplyURI(a.driverURL())
		if a.config.TLS != nil {
			cfg.SetTLSConfig(a.config.TLS)
		}
		return cfg, cfg.Validate()
	})
	direct := false
	if a.url.Scheme == "mongodb" {
		parsed, err := cfg()
		if err != nil {
			return nil, err
		}
		direct = parsed.Direct != nil && *parsed.Direct || parsed.LoadBalanced != nil && *parsed.LoadBalanced
	}
	if err := checkMongoDBLogin(&a, direct); err != nil {
		return nil, err
	}
	return func(context.Context) (*Opener, error) {
		cfg, err := cfg()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", leaderelection.ErrInvalid, err)
		}
		client, err := mongo.Connect(cfg)
		if err != nil {
			return nil, err
		}
		return newOpener(func() (changefeed.Store, error) {
			return mongodb.NewStore(client.Database(database).Collection(collection), a.config.Election, mongodb.WithRisk(a.risks...), mongodb.WithServerNames(a.url.Host))
		}, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
			defer cancel()
			return client.Disconnect(ctx)
		}), nil
	}, nil
}

// checkMongoDBLogin returns an error if the address contains credentials that may be sent without TLS. X.509 certificates
// are only used with TLS. direct reports that the client connects only to the host of the address, and not to servers
// that this host names.
func checkMongoDBLogin(a *address, direct bool) error {
	secure := a.url.Scheme == "mongodb+srv"
	var parameters []transport.Address
	_, sends := a.url.User.Password()
	for name, values := range a.query {
		switch strings.ToLower(name) {
		case "tls", "ssl":
			for _, value := range values {
				p := transport.Address{Text: name + "=" + value, Security: transport.Plain}
				if value == "true" {
					p.Security = transport.TLS
				}
				parameters = append(parameters, p)
			}
		case "authmechanism":
			sends = sends || !slices.Contains(values, "MONGODB-X509")
		}
	}
	if err := a.checkSecurity(parameters...); err != nil {
		return err
	}
	for _, p := range parameters { // checkSecurity has rejected parameters that contradict each other
		secure = p.Security == transport.TLS
	}
	login := a.newLogin("MongoDB", "password or other credential", sends, secure)
	if err := login.Check(); err != nil {
		return err
	}
	if login.OnlyLocal() && !direct {
		advice := "use mongodb:// with one host and directConnection=true"
		if a.url.Scheme == "mongodb" && len(a.hosts()) == 1 {
			advice = "add directConnection=true"
		}
		return fmt.Errorf("%w: the %s of MongoDB would be sent to the servers that %s names: %s, or %s",
			transport.ErrPlainCredentials, login.Credential, a.url.Host, advice, login.Setting)
	}
	return nil
}
