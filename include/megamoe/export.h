#ifndef MEGAMOE_EXPORT_H
#define MEGAMOE_EXPORT_H

/* What the shared library offers; everything else in it is hidden. */
#if defined(__GNUC__)
#define MEGAMOE_API __attribute__((visibility("default")))
#else
#define MEGAMOE_API
#endif

#endif
