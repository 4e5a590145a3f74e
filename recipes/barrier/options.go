package barrier

import "github.com/go-leaderelection/leaderelection/internal/zk/recipe"

// Option is an option of a [Barrier] or a [Double]. Every [recipes.Option] is such an option.
type Option interface{ ApplyBarrier(*recipe.Setup) }
