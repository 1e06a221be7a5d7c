/** The vendors whose own client libraries can be served without further settings. */
export const VENDOR_NAMES = ["google"] as const;
export type VendorName = (typeof VENDOR_NAMES)[number];
