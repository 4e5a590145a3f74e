//go:build !no_mongodb

package storeurl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/mongodb"
)

func init() { openers["mongodb"], openers["mongodb+srv"] = openMongoDB, openMongoDB }

// closeLimit limits Close of a driver that sends requests to its server.
const closeLimit = 2 * time.Second

func openMongoDB(_ context.Context, a address) (*Opened, error) {
	collection := a.takeParameter("collection")
	database := strings.Trim(a.url.Path, "/")
	if database == "" {
		return nil, fmt.Errorf("%w: address of the store: no database: expected mongodb://host/database", leaderelection.ErrInvalidOption)
	}
	cfg := options.Client().ApplyURI(a.driverURL())
	if a.config.TLS != nil {
		cfg.SetTLSConfig(a.config.TLS)
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", leaderelection.ErrInvalidOption, err)
	}
	client, err := mongo.Connect(cfg)
	if err != nil {
		return nil, err
	}
	return &Opened{
		New: func() (changefeed.Store, error) {
			return mongodb.New(client.Database(database).Collection(collection), a.config.Election, mongodb.WithRisk(a.risks...), mongodb.WithServerNames(a.url.Host))
		},
		Close: func() {
			ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
			defer cancel()
			_ = client.Disconnect(ctx)
		},
	}, nil
}
