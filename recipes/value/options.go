package value

import "github.com/go-leaderelection/leaderelection/internal/zk/recipe"

// Option is an option of a [Value]. Every [recipes.Option] is such an option.
type Option interface{ ApplyValue(*recipe.Setup) }
