package main

import (
	"context"
	"log/slog"
)

// electionLog returns the logger for an election. Because package elector logs each change of the role with level
// Info, electionLog logs messages of the election that have level Info with level Debug.
func (s *settings) electionLog() *slog.Logger {
	return slog.New(infoAsDebug{s.log.Handler()}).WithGroup("election")
}

// infoAsDebug is a handler that replaces the level Info by Debug.
type infoAsDebug struct{ slog.Handler }

// debugIfInfo returns Debug for the level Info, and every other level unchanged.
func debugIfInfo(l slog.Level) slog.Level {
	if l == slog.LevelInfo {
		return slog.LevelDebug
	}
	return l
}

func (h infoAsDebug) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, debugIfInfo(l))
}

func (h infoAsDebug) Handle(ctx context.Context, r slog.Record) error {
	r.Level = debugIfInfo(r.Level)
	return h.Handler.Handle(ctx, r)
}

func (h infoAsDebug) WithAttrs(attrs []slog.Attr) slog.Handler {
	return infoAsDebug{h.Handler.WithAttrs(attrs)}
}

func (h infoAsDebug) WithGroup(name string) slog.Handler {
	return infoAsDebug{h.Handler.WithGroup(name)}
}

// ignoreAfterSignal returns nil if a signal has cancelled ctx, and otherwise err.
func ignoreAfterSignal(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
